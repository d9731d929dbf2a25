// The history of a partition: a lane for each replica, a slider that goes back in time, and the events in sentences.

import { TimeAxis } from "../lib/axis.js";
import { button, el, fill, keyed, set, svg, write } from "../lib/dom.js";
import { clock, moment } from "../lib/format.js";

const STEPS = 500;

export const textOf = (chain) => chain.summary || chain.title || "";

/** Return the last of the entries, which are ordered by time, at or before a time; null if there is none. */
export function lastBefore(entries, time) {
  return entries.findLast((entry) => entry.time_ms <= time) ?? null;
}

export class Timeline {
  chains = [];
  states = [];
  axis = new TimeAxis(0, 1);
  replicas = [];
  time = null; // null: the present

  /** `scrubbed(time)` is called with a time, or with null for the present. */
  constructor({ scrubbed, presentName = "Now" }) {
    this.scrubbed = scrubbed;
    this.presentName = presentName;
    this.lanes = el("div", { class: "lanes" });
    this.slider = el("input", {
      type: "range",
      min: 0,
      max: STEPS,
      value: STEPS,
      "aria-label": "Time",
      oninput: () => this.slide(Number(this.slider.value)),
    });
    this.when = el("output", { class: "when mono" });
    this.live = button(presentName, () => this.go(null), { "aria-pressed": "true" });
    this.list = el("ol", { class: "chains", "aria-label": "Events of the partition" });
    this.element = el(
      "section",
      { class: "panel", "aria-label": "Timeline" },
      this.bar(),
      this.lanes,
      el(
        "div",
        { class: "slider" },
        el("span", { class: "muted", title: "Quiet times are short" }, "Not to scale"),
        this.slider,
      ),
      this.list,
    );
  }

  bar() {
    return el(
      "div",
      { class: "bar" },
      el("h2", {}, "Timeline"),
      this.when,
      el("span", { class: "grow" }),
      button("◀ Event before", () => this.step(-1)),
      button("Event after ▶", () => this.step(1)),
      this.live,
    );
  }

  /** Show the chains of the ledger and the leaderships (`states`), oldest first, between two times. */
  show({ chains, states, replicas, from, to }) {
    Object.assign(this, { chains, states, replicas });
    const first = Math.min(from ?? Infinity, states[0]?.time_ms ?? Infinity, chains[0]?.time ?? Infinity, to);
    this.axis = new TimeAxis(first, to, [
      ...states.map((state) => state.time_ms),
      ...chains.map((chain) => chain.time),
    ]);
    this.end = to;
    this.draw();
  }

  slide(step) {
    this.go(step === STEPS ? null : this.axis.time(step / STEPS));
  }

  /** Go to the event before or after the shown time. */
  step(direction) {
    const now = this.time ?? Infinity;
    const next =
      direction < 0 ? this.chains.findLast((chain) => chain.time < now) : this.chains.find((chain) => chain.time > now);
    if (next) this.go(next.time);
    else if (direction > 0) this.go(null);
  }

  go(time) {
    this.time = time;
    this.draw();
    this.scrubbed(time);
  }

  draw() {
    this.slider.value = this.time === null ? STEPS : Math.round(this.axis.fraction(this.time) * STEPS);
    const text = this.time === null ? this.presentName : moment(this.time);
    set(this.slider, "aria-valuetext", text);
    write(this.when, text);
    set(this.live, "aria-pressed", String(this.time === null));
    this.drawLanes();
    this.drawList();
  }

  drawLanes() {
    const at = (time) => this.axis.percent(time);
    const cursor = this.time === null ? "100%" : at(this.time);
    fill(
      this.lanes,
      this.replicas.map((id) =>
        el(
          "div",
          { class: "lane" },
          el("span", { class: "lane-name" }, `Broker ${id}`),
          svg(
            "svg",
            { height: 20, width: "100%", role: "img", "aria-label": this.spokenLane(id) },
            svg("rect", { class: "lane-none", x: 0, y: 8, width: "100%", height: 4 }),
            this.states.map((state, index) => this.piece(id, state, this.states[index + 1]?.time_ms ?? this.end, at)),
            svg("line", { class: "cursor", x1: cursor, x2: cursor, y1: 0, y2: 20 }),
          ),
        ),
      ),
    );
  }

  piece(id, state, end, at) {
    const kind = state.leader === id ? "leader" : state.isr.includes(id) ? "insync" : "";
    const width = `${Math.max(0.05, parseFloat(at(end)) - parseFloat(at(state.time_ms)))}%`;
    const place = { x: at(state.time_ms), width };
    return [
      kind &&
        svg("rect", {
          class: `lane-${kind}`,
          y: kind === "leader" ? 2 : 6,
          height: kind === "leader" ? 16 : 8,
          ...place,
        }),
      svg("line", { class: "lane-tick", x1: at(state.time_ms), x2: at(state.time_ms), y1: 2, y2: 18 }),
    ];
  }

  spokenLane(id) {
    const last = this.states.at(-1);
    if (!last) return `Broker ${id}: no history`;
    return `Broker ${id}: ${last.leader === id ? "leader" : last.isr.includes(id) ? "in sync" : "not in sync"} at the end`;
  }

  drawList() {
    const current = this.time === null ? null : this.chains.findLast((chain) => chain.time <= this.time);
    const shown = [...this.chains].reverse();
    keyed(
      this.list,
      shown,
      (chain) => `${chain.cause}@${chain.time}`,
      (chain) => this.entry(chain),
      (node, chain) => {
        set(node, "class", current === chain ? "current" : this.time !== null && chain.time > this.time ? "later" : "");
        set(node.time_, "aria-current", current === chain ? "time" : null);
      },
    );
    if (!shown.length) fill(this.list, el("li", { class: "empty" }, "The ledgers have no line about this partition."));
  }

  entry(chain) {
    const node = el("li", {});
    node.time_ = el(
      "button",
      { type: "button", class: "time mono", onclick: () => this.go(chain.time) },
      clock(chain.time),
    );
    const lines = chain.lines ?? [];
    const details = el("details", { class: chain.summary ? "" : "muted" }, el("summary", {}, textOf(chain)));
    details.addEventListener("toggle", () => {
      if (details.open && details.children.length === 1) details.append(linesOf(lines));
    });
    node.append(node.time_, lines.length ? details : el("span", {}, textOf(chain)));
    return node;
  }
}

function linesOf(lines) {
  return el(
    "ol",
    { class: "lines mono" },
    lines.map((line) =>
      el(
        "li",
        {},
        el("span", { class: "muted" }, `${clock(line.time)} broker ${line.broker} `),
        line.text ?? `${line.kind}`,
      ),
    ),
  );
}
