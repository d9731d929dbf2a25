// Dark and light: as the system says, or as the user has chosen.

import { set, write } from "./dom.js";

const NAMES = { auto: "◐ Auto", light: "☀ Light", dark: "☾ Dark" };
const KEY = "minikafka-theme";

export function startTheme(button) {
  const apply = (theme) => {
    set(document.documentElement, "data-theme", theme === "auto" ? null : theme);
    write(button, NAMES[theme]);
    set(button, "aria-label", `Colours: ${theme}. Change`);
    button.theme = theme;
  };
  button.addEventListener("click", () => {
    const names = Object.keys(NAMES);
    const next = names[(names.indexOf(button.theme) + 1) % names.length];
    localStorage.setItem(KEY, next);
    apply(next);
  });
  const stored = localStorage.getItem(KEY);
  apply(stored in NAMES ? stored : "auto");
}
