// Confirmation dialogs, other dialogs, copy buttons and toasts.
import { isLive } from "./live.js";

const TOAST_MILLISECONDS = 7000;

function openDialog(name) {
  const dialog = document.getElementById(name);
  if (dialog && !dialog.open) dialog.showModal();
}

function onClick(event) {
  const opener = event.target.closest("[data-open]");
  if (opener) openDialog(opener.dataset.open);
  const closer = event.target.closest("[data-close]");
  if (closer) closer.closest("dialog")?.close();
  const copier = event.target.closest("[data-copy]");
  if (copier) copy(copier);
}

async function copy(button) {
  const code = button.parentElement.querySelector("code");
  try {
    await navigator.clipboard.writeText(code.textContent);
    button.textContent = "Copied";
  } catch {
    // Without a secure connection there is no clipboard: select the text, so that the user can copy it.
    getSelection().selectAllChildren(code);
    button.textContent = "Selected";
  }
  setTimeout(() => (button.textContent = "Copy"), 2000);
}

function ask(event) {
  const { ctx, issueRequest, dropRequest } = event.detail;
  event.preventDefault();
  const dialog = document.getElementById("confirm");
  dialog.querySelector(".question").textContent = ctx.confirm;
  dialog.querySelector("[value=yes]").textContent = ctx.sourceElement.textContent.trim().replace("…", "");
  dialog.returnValue = "no";
  dialog.addEventListener("close", () => (dialog.returnValue === "yes" ? issueRequest() : dropRequest()), { once: true });
  dialog.showModal();
}

function afterRequest(event) {
  const { ctx } = event.detail;
  const form = ctx.sourceElement;
  if (ctx.request.method !== "POST" || ctx.response.status >= 400) return;
  if (form.matches?.("[data-close-after]")) form.closest("dialog")?.close();
  const stays = !ctx.response.headers.get("HX-Redirect") && ctx.response.headers.get("HX-Reswap") === "none";
  // A live page shows the change without a reload.
  if (stays && (form.matches?.("[data-reload]") || !isLive()) && !form.closest("#builder")) setTimeout(() => location.reload(), 600);
}

export function startDialogs() {
  document.addEventListener("click", onClick);
  document.addEventListener("htmx:confirm", (event) => event.detail.ctx.confirm && ask(event));
  document.addEventListener("htmx:after:request", afterRequest);
  document.addEventListener("htmx:after:swap", (event) => {
    const dialog = document.getElementById("dialog");
    if (event.detail.ctx.target === dialog) openDialog("dialog");
  });
  document.addEventListener("close", (event) => {
    if (event.target.id === "dialog") {
      if (event.target.querySelector("[data-done]") && !isLive()) location.reload();
      event.target.replaceChildren();
    }
  }, true);
  const toasts = document.getElementById("toasts");
  if (toasts) {
    new MutationObserver((changes) => {
      for (const change of changes) for (const node of change.addedNodes) setTimeout(() => node.remove?.(), TOAST_MILLISECONDS);
    }).observe(toasts, { childList: true });
  }
}
