// The dialog of every action: its arguments, the command line that it equals, the plan, one question, and the outcome.

import { get, post, sentence } from "../lib/api.js";
import { announce, el, fill, set, write } from "../lib/dom.js";
import { labelled } from "../lib/table.js";
import { clock, count } from "../lib/format.js";
import { commandOf, problemOf, sentences } from "./why.js";

const PLAN_DELAY_MS = 300;
const PLAN_LINES_MAX = 200;

/** The dialog of one action. `fields`: [{name, label, kind, values, value, required, hint, min, max}]. */
export class ActionDialog {
  constructor({ action, title, arguments: values = {}, fields = [], dangerous = false, done = () => {} }) {
    Object.assign(this, { action, values, fields, dangerous, done, inputs: new Map() });
    this.plan = el("div", { class: "plan", "aria-live": "polite" });
    this.outcome = el("div", { role: "status" });
    this.confirm = el(
      "button",
      { type: "submit", class: dangerous ? "danger solid" : "primary", disabled: true, "data-confirm": true },
      title,
    );
    this.cancel = el("button", { type: "button", onclick: () => this.dialog.close() }, "Cancel");
    const form = el(
      "form",
      {
        method: "dialog",
        onsubmit: (event) => {
          event.preventDefault();
          this.run();
        },
      },
      el("h2", { id: "dialog-title" }, title),
      this.fieldset(),
      this.plan,
      this.outcome,
      el("div", { class: "buttons end" }, this.cancel, this.confirm),
    );
    this.dialog = el("dialog", { "aria-labelledby": "dialog-title", onclose: () => this.dialog.remove() }, form);
  }

  fieldset() {
    if (!this.fields.length) return null;
    return el(
      "div",
      { class: "fields" },
      this.fields.map((field) => {
        const input = inputOf(field);
        input.addEventListener("input", () => this.later());
        this.inputs.set(field.name, input);
        const node = labelled(field.label ?? field.name, input, field.hint);
        return field.kind === "script" ? [labelled("File", this.chooserOf(input)), node] : node;
      }),
    );
  }

  /** Return an input for a file, the text of which becomes that of another input. */
  chooserOf(input) {
    const read = async ({ target }) => {
      input.value = (await target.files[0]?.text()) ?? input.value;
      this.later();
    };
    return el("input", { type: "file", accept: ".toml,text/plain", onchange: read });
  }

  open() {
    document.body.append(this.dialog);
    this.dialog.showModal();
    (this.inputs.values().next().value ?? this.cancel).focus();
    this.showPlan();
  }

  arguments_() {
    const given = [...this.inputs].map(([name, input]) => [name, valueOf(input)]).filter(([, value]) => value !== "");
    return { ...this.values, ...Object.fromEntries(given) };
  }

  isComplete() {
    return [...this.inputs.values()].every((input) => input.checkValidity());
  }

  later() {
    clearTimeout(this.timer);
    set(this.confirm, "disabled", true);
    this.timer = setTimeout(() => this.showPlan(), PLAN_DELAY_MS);
  }

  /** Ask the server for the command line and the plan of the arguments, and allow the action if it can be done. */
  async showPlan() {
    fill(this.outcome);
    if (!this.isComplete())
      return fill(this.plan, el("p", { class: "muted" }, "Fill in the fields to see the command and its plan."));
    const asked = JSON.stringify(this.arguments_());
    if (!this.plan.children.length) fill(this.plan, el("p", { class: "muted" }, "Asking for the plan …"));
    try {
      const plan = await post("api/actions/plan", { action: this.action, arguments: this.arguments_() });
      if (asked !== JSON.stringify(this.arguments_())) return undefined;
      this.receive(plan);
    } catch (error) {
      fill(this.plan, problemOf(error));
    }
    return undefined;
  }

  receive({ command, plan = [], why_not: whyNot, is_dangerous: isDangerous }) {
    if (isDangerous) set(this.confirm, "class", "danger solid");
    fill(
      this.plan,
      el("h3", {}, "Command"),
      commandOf(command),
      el("h3", {}, "What will happen"),
      sentences(plan.slice(0, PLAN_LINES_MAX)),
      plan.length > PLAN_LINES_MAX &&
        el("p", { class: "muted" }, `and ${count(plan.length - PLAN_LINES_MAX, "further line")}`),
      whyNot ? el("p", { class: "problem" }, sentence(whyNot)) : null,
    );
    set(this.confirm, "disabled", Boolean(whyNot));
  }

  async run() {
    if (this.confirm.disabled || !this.isComplete()) return;
    set(this.confirm, "disabled", true);
    write(this.outcome, "Running …");
    try {
      this.show(await post("api/actions/run", { action: this.action, arguments: this.arguments_(), confirmed: true }));
    } catch (error) {
      fill(this.outcome, problemOf(error));
      set(this.confirm, "disabled", false);
    }
  }

  show({ exit_code: code, output }) {
    const text =
      code === 0
        ? "Done."
        : code === null
          ? "The command has not ended in time."
          : `The command failed with exit code ${code}.`;
    fill(
      this.outcome,
      el("p", { class: code === 0 ? "done" : "problem" }, text),
      output ? el("pre", { class: "output", tabindex: 0 }, output) : null,
    );
    announce(text);
    write(this.cancel, "Close");
    this.confirm.hidden = code === 0;
    set(this.confirm, "disabled", false);
    if (code === 0) {
      this.cancel.focus();
      this.done();
    }
  }
}

const valueOf = (input) => (input.type === "number" && input.value !== "" ? Number(input.value) : input.value);

function inputOf({ name, kind, values, value = "", required = false, min, max }) {
  const common = { name, required };
  if (kind === "choice" || values?.length) {
    const select = el(
      "select",
      common,
      values.map((each) => el("option", { value: each }, String(each))),
    );
    select.value = value || values[0];
    return select;
  }
  const rows = { lines: 3, script: 8 }[kind];
  if (rows) return el("textarea", { ...common, rows, spellcheck: "false" }, value);
  if (kind === "integer") return el("input", { ...common, type: "number", min, max, value });
  return el("input", { ...common, type: "text", value, autocomplete: "off", spellcheck: "false" });
}

/** Open a dialog in which any action of this console can be chosen. */
export async function openAll() {
  const list = el("ul", { class: "choices" });
  const ran = el("ol", { class: "ran" });
  const dialog = el(
    "dialog",
    { "aria-labelledby": "dialog-title", onclose: () => dialog.remove() },
    el("h2", { id: "dialog-title" }, "Actions"),
    list,
    el("h3", {}, "Commands that this console has run"),
    ran,
    el("div", { class: "buttons end" }, el("button", { type: "button", onclick: () => dialog.close() }, "Close")),
  );
  document.body.append(dialog);
  dialog.showModal();
  try {
    const [actions, runs] = await Promise.all([get("api/actions"), get("api/actions/runs")]);
    fill(
      list,
      actions.map((each) => choiceOf(each, dialog)),
    );
    fill(ran, runs.toReversed().map(runOf), !runs.length && el("li", { class: "muted" }, "None yet."));
    list.querySelector("button:not(:disabled)")?.focus();
  } catch (error) {
    fill(list, problemOf(error));
  }
}

function choiceOf(each, dialog) {
  const fields = each.arguments.map((argument) => ({
    ...argument,
    label: argument.label ?? argument.name.replaceAll("_", " "),
  }));
  const open = () => {
    dialog.close();
    new ActionDialog({ action: each.action, title: titleOf(each.action), fields }).open();
  };
  return el(
    "li",
    {},
    el("button", { type: "button", disabled: !each.available, onclick: open }, titleOf(each.action)),
    each.available ? null : el("small", { class: "muted" }, each.why_not),
  );
}

function runOf({ time_ms: time, user, command, exit_code: code }) {
  const outcome = code === 0 ? "" : code === null ? " (not ended in time)" : ` (exit code ${code})`;
  return el(
    "li",
    {},
    el("time", { class: "mono muted" }, `${clock(time, false)} ${user ?? ""}`),
    " ",
    el("code", {}, command),
    outcome,
  );
}

const titleOf = (action) => action[0].toUpperCase() + action.slice(1).replaceAll("-", " ");
