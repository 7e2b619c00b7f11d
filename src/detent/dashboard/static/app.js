// Entry point of the page scripts. Each part handles the elements that exist, and again after every swap.
import { startCharts } from "./charts.js";
import { startDialogs } from "./dialogs.js";
import { startForms } from "./forms.js";
import { startKeys } from "./keys.js";
import { startLive } from "./live.js";
import { startSelection } from "./selection.js";
import { refuseChanges } from "./stale.js";
import { startTheme } from "./settings.js";
import { startTimes } from "./times.js";

const csrf = document.querySelector('meta[name="csrf"]')?.content;
document.addEventListener("htmx:config:request", (event) => {
  if (csrf) event.detail.ctx.request.headers["X-CSRF-Token"] = csrf;
});

// The newest data is at the right end, which a narrow screen would hide.
for (const heat of document.querySelectorAll(".heat")) heat.parentElement.scrollLeft = heat.parentElement.scrollWidth;

refuseChanges();
startTimes();
startTheme();
startDialogs();
startForms();
startKeys();
startSelection();
startLive();
startCharts();
