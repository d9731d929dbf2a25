// Two small pictures: where in the grid the problems are, and how many records were written per second.

import { el, svg } from "../lib/dom.js";
import { number } from "../lib/format.js";

const WIDTH = 14;

/** A strip next to the grid: one line of pixels stands for one or more partitions, and a frame for the part in sight. */
export class Overview {
  constructor(grid, severityOf) {
    this.grid = grid;
    this.severityOf = severityOf;
    this.canvas = el("canvas", { width: WIDTH });
    this.frame = el("div", { class: "overview-frame" });
    this.element = el(
      "div",
      { class: "overview", "aria-hidden": "true", onclick: (event) => this.jump(event) },
      this.canvas,
      this.frame,
    );
    grid.body.addEventListener("scroll", () => this.drawFrame());
  }

  draw() {
    const height = this.grid.body.clientHeight;
    if (!height) return;
    this.canvas.height = height; // clears it too
    const colours = getComputedStyle(this.element);
    this.drawProblems(height, ["", colours.getPropertyValue("--warn"), colours.getPropertyValue("--bad")]);
    this.drawFrame();
  }

  drawProblems(height, colours) {
    const context = this.canvas.getContext("2d");
    const { items } = this.grid;
    const scale = height / items.length;
    items.forEach((item, index) => {
      const severity = this.severityOf(item);
      if (!severity) return;
      context.fillStyle = colours[severity];
      const left = severity === 2 ? 0 : WIDTH / 3; // partitions without a leader have the longer line
      context.fillRect(left, index * scale, WIDTH, Math.max(1, scale));
    });
  }

  drawFrame() {
    const { clientHeight: height, scrollHeight: total, scrollTop } = this.grid.body;
    this.frame.hidden = total <= height;
    this.frame.style.transform = `translateY(${(scrollTop / total) * height}px)`;
    this.frame.style.height = `${Math.max(4, (height / total) * height)}px`;
  }

  jump(event) {
    const { body } = this.grid;
    const place = (event.clientY - this.element.getBoundingClientRect().top) / this.element.clientHeight;
    body.scrollTop = place * body.scrollHeight - body.clientHeight / 2;
  }
}

/** Return a picture of records per second: `seconds` has [second, records], at most one a second. */
export function sparkline(seconds) {
  const full = seconds.slice(0, -1).slice(-60); // the last second is not over
  const most = Math.max(1, ...full.map(([, sent]) => sent));
  const last = full.slice(-3);
  const rate = last.length ? Math.round(last.reduce((sum, [, sent]) => sum + sent, 0) / last.length) : 0;
  const start = (full.at(-1)?.[0] ?? 0) - 59;
  const points = full.map(
    ([second, sent]) => `${((second - start) / 59) * 160},${(27 - (sent / most) * 25).toFixed(1)}`,
  );
  return [
    svg(
      "svg",
      { viewBox: "0 0 160 28", class: "spark-line", role: "img", "aria-label": `${number(rate)} records per second` },
      svg("line", { x1: 0, x2: 160, y1: 27.5, y2: 27.5, class: "axis" }),
      svg("polyline", { points: points.join(" ") }),
    ),
    el("span", { class: "spark-text" }, el("strong", {}, number(rate)), " records/s"),
  ];
}
