// What `minikafka why` says, and errors of the server.

import { get } from "../lib/api.js";
import { announce, el, fill } from "../lib/dom.js";

/** Return {element, load}: a panel that is empty until `load` is called. */
export function whyPanel(path) {
  const element = el("div", { class: "why", "aria-live": "polite" });
  const close = el("button", { type: "button", class: "quiet", "aria-label": "Close the explanation", onclick: () => fill(element) }, "✕");
  const frame = (...content) => fill(element, el("section", { class: "panel", "aria-label": "Why" }, el("div", { class: "bar" },
    el("h2", {}, "Why"), el("span", { class: "grow" }), close), ...content));
  return {
    element,
    async load() {
      frame(el("p", { class: "muted" }, "Asking the brokers and reading the ledgers …"));
      try {
        const { lines, command } = await get(`api/${path}`);
        frame(el("ul", { class: "sentences" }, lines.map((line) => el("li", {}, line))), commandOf(command));
      } catch (error) {
        frame(problemOf(error));
      }
    },
  };
}

/** Return a command line, with a button that copies it. */
export function commandOf(command) {
  const copy = el("button", { type: "button", class: "quiet", "aria-label": "Copy the command", onclick: async () => {
    await navigator.clipboard?.writeText(command);
    announce("Copied.");
  } }, "Copy");
  return el("div", { class: "command" }, el("code", {}, command), copy);
}

/** Return an error of the server: what is wrong, and what to do. */
export function problemOf(error) {
  return el("div", { class: "problem", role: "alert" }, el("strong", {}, error.message), error.hint ? el("span", {}, ` ${error.hint}`) : null);
}
