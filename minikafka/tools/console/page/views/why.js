// What `minikafka why` says, and errors of the server.

import { get, sentence } from "../lib/api.js";
import { announce, el, fill, withCode } from "../lib/dom.js";

/** Return {element, load}: a panel that is empty until `load` is called. */
export function whyPanel(path) {
  const element = el("div", { class: "why", "aria-live": "polite" });
  const close = el(
    "button",
    { type: "button", class: "quiet", "aria-label": "Close the explanation", onclick: () => fill(element) },
    "✕",
  );
  const frame = (...content) =>
    fill(
      element,
      el(
        "section",
        { class: "panel", "aria-label": "Why" },
        el("div", { class: "bar" }, el("h2", {}, "Why"), el("span", { class: "grow" }), close),
        ...content,
      ),
    );
  return {
    element,
    async load() {
      frame(el("p", { class: "muted" }, "Asking the brokers and reading the ledgers …"));
      try {
        const { lines, command } = await get(`api/${path}`);
        frame(sentences(lines), commandOf(command));
      } catch (error) {
        frame(problemOf(error));
      }
    },
  };
}

/** Return the lines of a command as a list. A line that begins with spaces or a hyphen belongs to the line above. */
export function sentences(lines) {
  return el(
    "ul",
    { class: "sentences", tabindex: 0, "aria-label": "Explanation" },
    lines.map((line) => {
      const [, spaces, hyphen, text] = line.match(/^( *)(- )?(.*)$/s);
      const level = Math.min(5, spaces.length / 2 + (hyphen ? 1 : 0));
      return el("li", { class: `level-${Math.floor(level)}` }, withCode(text));
    }),
  );
}

/** Return a command line, with a button that copies it. */
export function commandOf(command) {
  const copy = el(
    "button",
    {
      type: "button",
      class: "quiet",
      "aria-label": "Copy the command",
      onclick: async () => {
        await navigator.clipboard?.writeText(command);
        announce("Copied.");
      },
    },
    "Copy",
  );
  return el("div", { class: "command" }, el("code", {}, command), copy);
}

/** Return a sentence about what cannot be seen. */
export function gapOf(text) {
  return el("div", { class: "gap", role: "status" }, withCode(sentence(text)));
}

/** Return an error of the server: what is wrong, and what to do. */
export function problemOf(error) {
  return el(
    "div",
    { class: "problem", role: "alert" },
    el("strong", {}, withCode(error.message)),
    " ",
    withCode(error.hint ?? ""),
  );
}
