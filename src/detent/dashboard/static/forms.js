// The job form: fields that depend on a choice, preset buttons, and the schedule preview.
const SCHEDULE = new Set(["name", "kind", "cron", "rrule", "every", "at", "also", "exclude", "after", "anchor", "timezone", "dst_gap", "dst_overlap", "day_match", "dialect", "starts_at", "ends_at"]);

function showChoices(form) {
  for (const part of form.querySelectorAll("[data-when]")) {
    const [name, value] = part.dataset.when.split("=");
    part.hidden = form.elements[name].value !== value;
  }
}

function changed() {
  document.body.dispatchEvent(new CustomEvent("schedule-changed", { bubbles: true }));
}

function showFault(form) {
  const fault = document.querySelector("#form-error [data-at]");
  for (const field of form.querySelectorAll(".wrong")) field.classList.remove("wrong");
  if (!fault?.dataset.at) return;
  const place = `/${fault.dataset.at.split("/")[1]}`;
  const field = form.querySelector(`[data-pointer="${CSS.escape(place)}"]`);
  if (!field) return;
  field.closest("details")?.setAttribute("open", "");
  field.classList.add("wrong");
  field.focus();
}

export function startForms() {
  const form = document.getElementById("builder");
  if (!form) return;
  showChoices(form);
  form.addEventListener("input", (event) => {
    showChoices(form);
    document.getElementById("form-error").replaceChildren();
    if (SCHEDULE.has(event.target.name)) changed();
  });
  form.addEventListener("click", (event) => {
    const filler = event.target.closest("[data-fill]");
    if (!filler) return;
    form.elements[filler.dataset.fill].value = filler.dataset.value;
    changed();
  });
  document.addEventListener("htmx:after:swap", (event) => {
    if (event.detail.ctx.sourceElement === form) showFault(form);
  });
}
