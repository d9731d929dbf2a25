// Keys that work in every view, except while a field has the focus.

import { el } from "./dom.js";

const HELP = [
  ["1 … 4", "Cluster, Topics, Groups, Transactions"],
  ["/", "Go to the filter of the view"],
  ["g", "Go to the grid of partitions"],
  [
    "Arrow keys, Page Up, Page Down, Home, End",
    "Move in the grid; with Ctrl, Home and End go to the first and last row",
  ],
  ["Enter", "Open the partition of the grid's active row"],
  ["t", "Change the colours"],
  ["Escape", "Close a dialog; in a view of one thing, go back to all of them"],
  ["?", "Show these keys"],
];

export function startKeys({ go, back, theme, help }) {
  help.addEventListener("click", showHelp);
  document.addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.altKey || event.metaKey || document.querySelector("dialog[open]")) return;
    if (event.target.closest("input, select, textarea")) {
      if (event.key === "Escape") event.target.blur();
      return;
    }
    const actions = {
      1: () => go("cluster"),
      2: () => go("topics"),
      3: () => go("groups"),
      4: () => go("transactions"),
      "/": () => document.querySelector("[data-filter]")?.focus(),
      g: () => document.querySelector("[role=grid]")?.focus(),
      t: () => theme.click(),
      "?": showHelp,
      Escape: back,
    };
    if (!actions[event.key]) return;
    event.preventDefault();
    actions[event.key]();
  });
}

function showHelp() {
  const dialog = el(
    "dialog",
    { "aria-labelledby": "keys-title", onclose: () => dialog.remove() },
    el("h2", { id: "keys-title" }, "Keys"),
    el(
      "dl",
      { class: "key-list" },
      HELP.map(([key, text]) => el("div", {}, el("dt", {}, el("kbd", {}, key)), el("dd", {}, text))),
    ),
    el("div", { class: "buttons end" }, el("button", { type: "button", onclick: () => dialog.close() }, "Close")),
  );
  document.body.append(dialog);
  dialog.showModal();
}
