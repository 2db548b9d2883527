// The colours: as the system has them, or as chosen here. In the head and not a module, so that nothing flashes.
(() => {
  const root = document.documentElement;
  const dark = matchMedia("(prefers-color-scheme: dark)");
  const choice = () => localStorage.getItem("theme") ?? "auto";

  function apply() {
    root.dataset.theme = choice() === "auto" ? (dark.matches ? "dark" : "light") : choice();
    document.dispatchEvent(new Event("theme"));
  }

  function next() {
    const choices = ["auto", "light", "dark"];
    localStorage.setItem("theme", choices[(choices.indexOf(choice()) + 1) % choices.length]);
    apply();
  }

  window.theme = { choice, next };
  dark.addEventListener("change", apply);
  apply();
})();
