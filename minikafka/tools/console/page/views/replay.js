// Replay: the ledgers of a cluster that is gone, with a slider of time under every view.

import { TimeAxis } from "../lib/axis.js";
import { get } from "../lib/api.js";
import { el, fill, set, svg, write } from "../lib/dom.js";
import { moment } from "../lib/format.js";

const STEPS = 1000;
const PLAY_MS = 400;

export class Replay {
  time = null;
  timer = 0;

  /** `show(time)` loads the state of the cluster at a time. */
  constructor(footer, show) {
    Object.assign(this, { footer, show });
    this.slider = el("input", {
      type: "range",
      min: 0,
      max: STEPS,
      value: STEPS,
      "aria-label": "Time of the replay",
      oninput: () => this.go(this.timeAt(Number(this.slider.value))),
    });
    this.when = el("output", { class: "mono" });
    this.marks = el("div", { class: "marks" });
    this.play = el("button", { type: "button", "aria-pressed": "false", onclick: () => this.togglePlay() }, "▶ Play");
    fill(
      footer,
      el("strong", {}, "Replay"),
      this.play,
      el("button", { type: "button", onclick: () => this.step(-1) }, "◀ Event before"),
      el("button", { type: "button", onclick: () => this.step(1) }, "Event after ▶"),
      el("div", { class: "replay-track" }, this.marks, this.slider),
      this.when,
    );
  }

  async load() {
    const { from_ms: from, to_ms: to, marks } = await get("api/timeline");
    Object.assign(this, {
      from,
      to,
      events: marks,
      axis: new TimeAxis(
        from,
        to,
        marks.map(([time]) => time),
      ),
    });
    this.footer.hidden = false;
    fill(
      this.marks,
      svg(
        "svg",
        { width: "100%", height: 8, "aria-hidden": "true" },
        marks.slice(-2000).map(([time, kind]) => {
          const x = this.axis.percent(time);
          return svg("line", { x1: x, x2: x, y1: 0, y2: 8, class: `mark-${kind.replace(" ", "-")}` });
        }),
      ),
    );
    this.set(this.to);
  }

  timeAt(step) {
    return Math.round(this.axis.time(step / STEPS));
  }

  set(time) {
    this.time = Math.max(this.from, Math.min(time, this.to));
    this.slider.value = Math.round(this.axis.fraction(this.time) * STEPS);
    set(this.slider, "aria-valuetext", moment(this.time));
    write(this.when, moment(this.time));
  }

  go(time) {
    this.set(time);
    this.show(this.time);
  }

  step(direction) {
    const next =
      direction < 0
        ? this.events.findLast(([time]) => time < this.time)
        : this.events.find(([time]) => time > this.time);
    if (next) this.go(next[0]);
    else if (this.timer) this.togglePlay();
    return Boolean(next);
  }

  togglePlay() {
    const isPlaying = Boolean(this.timer);
    clearInterval(this.timer);
    this.timer = isPlaying ? 0 : setInterval(() => this.step(1), PLAY_MS);
    this.play.setAttribute("aria-pressed", String(!isPlaying));
    write(this.play, isPlaying ? "▶ Play" : "❚❚ Pause");
    if (!isPlaying && this.time >= this.to) this.go(this.from);
  }
}
