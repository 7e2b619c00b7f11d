// Runs before the first paint, so that the page does not flash in the wrong colours.
(() => {
  const root = document.documentElement;
  try {
    const theme = localStorage.getItem("detent-theme");
    if (theme === "light" || theme === "dark") root.dataset.theme = theme;
    root.dataset.clock = localStorage.getItem("detent-clock") || "utc";
  } catch {
    root.dataset.clock = "utc";
  }
})();
