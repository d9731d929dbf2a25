// The view of one partition: the logs of its replicas, its history, and what is wrong with it.

import { get, polled, segment } from "../lib/api.js";
import { button, el, fill, headline, link, write } from "../lib/dom.js";
import { clock, listed, number } from "../lib/format.js";
import { ADDING, EPOCH, ISR, LAST_STABLE, LEADER, REMOVING, REPLICAS, hasLeader } from "../lib/rows.js";
import { drawBars } from "./bars.js";
import { Timeline, lastBefore } from "./timeline.js";
import { gapOf, problemOf, whyPanel } from "./why.js";

const SAMPLES_MAX = 1800;
const HISTORY_EVERY = 5; // answers; further when the leader or ISR has changed

export class PartitionView {
  samples = [];
  loads = 0;
  known = new Map();
  isTail = false;

  constructor(context, topic, partition) {
    Object.assign(this, { context, topic, partition: Number(partition), model: context.model });
    this.name = `${topic}-${partition}`;
    this.title = this.name;
    this.facts = el("dl", { class: "facts" });
    this.bars = el("div", { class: "bars" });
    this.note = el("p", { class: "muted", role: "status" });
    this.problem = el("div", {});
    this.timeline = new Timeline({
      scrubbed: (time) => (context.model.isReplay ? context.seek(time) : this.draw()),
      presentName: context.model.isReplay ? "End" : "Now",
    });
    this.why = whyPanel(`why/partition/${segment(topic)}/${partition}`);
    this.element = el(
      "div",
      { class: "view" },
      headline(this.name, ["partition of ", link(topic, "topics", topic)], this.buttons()),
      this.problem,
      this.facts,
      this.why.element,
      this.logs(),
      this.timeline.element,
    );
    this.stop = polled(() => this.load(), 1000);
  }

  buttons() {
    const disabled = this.model.isReplay;
    const cancel = () => this.run("cancel-reassignment", `Cancel the reassignment of ${this.name}`);
    this.cancel = button("Cancel reassignment…", cancel, { hidden: true });
    return el(
      "div",
      { class: "buttons" },
      button("Why?", () => this.why.load(), { disabled }),
      button("Elect leader…", () => this.elect(), { disabled }),
      this.cancel,
      button("Reassign…", () => this.reassign(), { disabled }),
    );
  }

  elect() {
    const type = {
      name: "type",
      label: "Election",
      kind: "choice",
      values: ["preferred", "unclean"],
      value: "preferred",
      hint: "unclean: a replica that is not in sync may become the leader, and records may be lost",
    };
    this.run("elect", `Elect the leader of ${this.name}`, [type]);
  }

  reassign() {
    const replicas = {
      name: "replicas",
      label: "Replicas, preferred leader first",
      value: (this.row?.[REPLICAS] ?? []).join(","),
      required: true,
      hint: `known brokers: ${listed(this.model.brokerIds)}`,
    };
    this.run("reassign", `Reassign ${this.name}`, [replicas]);
  }

  run(action, title, fields = []) {
    this.context.act({ action, title, fields, arguments: { topic: this.topic, partition: this.partition } });
  }

  logs() {
    const choice = (text, isTail) =>
      el(
        "button",
        {
          type: "button",
          "aria-pressed": String(this.isTail === isTail),
          onclick: (event) => this.zoom(event.target, isTail),
        },
        text,
      );
    return el(
      "section",
      { class: "panel", "aria-label": "Replicas" },
      el(
        "div",
        { class: "bar" },
        el("h2", {}, "Logs of the replicas"),
        el("span", { class: "grow" }),
        el(
          "div",
          { class: "segmented", role: "group", "aria-label": "Offsets shown" },
          choice("Whole log", false),
          choice("End of the log", true),
        ),
      ),
      this.note,
      this.bars,
      el(
        "p",
        { class: "key muted" },
        "Solid: committed. Hatched: not yet on all replicas of the ISR. Vertical line: the leader's high watermark. eN: first offset of epoch N.",
      ),
    );
  }

  zoom(button, isTail) {
    this.isTail = isTail;
    for (const each of button.parentElement.children) each.setAttribute("aria-pressed", String(each === button));
    this.draw();
  }

  get row() {
    return this.model.partitions.get(this.name);
  }

  async load() {
    try {
      const isMoved = String(this.row?.slice(0, 5)) !== this.shownRow;
      const withHistory = this.model.isReplay || isMoved || this.loads % HISTORY_EVERY === 0;
      this.loads += 1;
      const answer = await get(
        `api/partition/${segment(this.topic)}/${this.partition}`,
        withHistory ? {} : { history: "no" },
      );
      this.shownRow = String(this.row?.slice(0, 5));
      this.receive(answer);
    } catch (error) {
      fill(this.problem, problemOf(error));
    }
  }

  receive(answer) {
    const time = Date.now();
    const replicas = answer.replicas.map((replica) => this.remembered(replica, time));
    this.samples.push({ time_ms: time, replicas });
    if (this.samples.length > SAMPLES_MAX) this.samples.shift();
    const known = new Set([...(this.row?.[REPLICAS] ?? []), ...answer.replicas.map((replica) => replica.broker)]);
    if (this.model.isReplay) this.timeline.time = this.context.at;
    const end = this.model.isReplay ? answer.to_ms : Math.max(answer.to_ms ?? 0, time);
    const { ledger: chains = this.timeline.chains, states = this.timeline.states } = answer;
    this.timeline.show({ chains, states, replicas: [...known], from: answer.from_ms, to: end });
    fill(this.problem, (answer.unseen ?? []).map(gapOf));
    this.draw();
  }

  /** Return a replica, with the offsets that it had when its broker last answered, if the broker does not answer. */
  remembered(replica, time) {
    if (Number.isFinite(replica.high_watermark) && replica.high_watermark >= 0) {
      this.known.set(replica.broker, { ...replica, seen_ms: time });
      return replica;
    }
    const known = this.known.get(replica.broker);
    if (!known) return replica;
    const { broker, state, in_isr, lag_ms, log_end } = replica;
    return { ...known, broker, state, in_isr, lag_ms, log_end: log_end ?? known.log_end, is_old: true };
  }

  draw() {
    if (this.model.isReplay) this.timeline.time = this.context.at;
    const { time } = this.timeline;
    const sample = time === null || this.model.isReplay ? this.samples.at(-1) : lastBefore(this.samples, time);
    const past = time === null ? null : lastBefore(this.timeline.states, time);
    this.drawFacts(past);
    if (!sample && time !== null) {
      const since = this.samples[0] ? ` This page has them since ${clock(this.samples[0].time_ms, false)}.` : "";
      write(this.note, `The ledgers do not have the offsets of that time.${since}`);
      fill(this.bars);
      return;
    }
    write(this.note, "");
    if (!sample) return;
    const leader = past ? past.leader : this.leader();
    const replicas = past
      ? sample.replicas.map((replica) => ({ ...replica, in_isr: past.isr.includes(replica.broker) }))
      : sample.replicas;
    drawBars(this.bars, replicas, leader, {
      isTail: this.isTail,
      absence: this.model.isReplay ? "offsets are not in the ledgers" : "not seen: this broker does not answer",
    });
  }

  leader() {
    return this.row && hasLeader(this.row) ? this.row[LEADER] : null;
  }

  drawFacts(past) {
    const row = this.row;
    const now = row ? { leader: this.leader(), leader_epoch: row[EPOCH], isr: row[ISR] } : { leader: null, isr: [] };
    const shown = past ?? now;
    const fact = (name, value) => el("div", {}, el("dt", {}, name), el("dd", {}, value));
    fill(
      this.facts,
      fact("Leader", shown.leader === null || shown.leader < 0 ? "none" : `broker ${shown.leader}`),
      fact("Leader epoch", number(shown.leader_epoch)),
      fact("ISR", listed(shown.isr)),
      fact("Replicas", row ? listed(row[REPLICAS]) : "–"),
      row?.[ADDING]?.length > 0 && fact("Being added", listed(row[ADDING])),
      row?.[REMOVING]?.length > 0 && fact("Being removed", listed(row[REMOVING])),
      row && Number.isFinite(row[LAST_STABLE]) && fact("Last stable offset", number(row[LAST_STABLE])),
    );
    this.cancel.hidden = !(row?.[ADDING]?.length || row?.[REMOVING]?.length);
  }

  update() {
    this.draw();
  }

  close() {
    this.stop();
  }
}
