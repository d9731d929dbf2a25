// Two small pictures: where in the grid the problems are, and how many records were written per second.

import { el, svg } from "../lib/dom.js";
import { number } from "../lib/format.js";

const WIDTH = 14;

/** A strip next to the grid: one line of pixels stands for one or more partitions, and a frame for the part in sight. */
export class Overview {
  constructor(grid, severityOf) {
    this.grid = grid;
    this.severityOf = severityOf;
    this.canvas = el("canvas", { class: "overview", width: WIDTH, "aria-hidden": "true", onclick: (event) => this.jump(event) });
    this.element = this.canvas;
    this.onScroll = () => this.draw();
    grid.body.addEventListener("scroll", this.onScroll);
  }

  draw() {
    const height = this.grid.body.clientHeight;
    if (!height) return;
    if (this.canvas.height !== height) this.canvas.height = height;
    const context = this.canvas.getContext("2d");
    const colours = getComputedStyle(this.canvas);
    context.clearRect(0, 0, WIDTH, height);
    this.drawProblems(context, height, ["", colours.getPropertyValue("--warn"), colours.getPropertyValue("--bad")]);
    this.drawFrame(context, height, colours.getPropertyValue("--muted"));
  }

  drawProblems(context, height, colours) {
    const { items } = this.grid;
    const scale = height / items.length;
    items.forEach((item, index) => {
      const severity = this.severityOf(item);
      if (!severity) return;
      context.fillStyle = colours[severity];
      const left = severity === 2 ? 0 : WIDTH / 3;  // partitions without a leader have the longer line
      context.fillRect(left, index * scale, WIDTH, Math.max(1, scale));
    });
  }

  drawFrame(context, height, colour) {
    const total = this.grid.body.scrollHeight;
    if (total <= height) return;
    context.strokeStyle = colour;
    const top = (this.grid.body.scrollTop / total) * height;
    context.strokeRect(0.5, top + 0.5, WIDTH - 1, Math.max(4, (height / total) * height) - 1);
  }

  jump(event) {
    const { body } = this.grid;
    body.scrollTop = (event.offsetY / this.canvas.clientHeight) * body.scrollHeight - body.clientHeight / 2;
  }

  close() {
    this.grid.body.removeEventListener("scroll", this.onScroll);
  }
}

/** Return a picture of records per second: `seconds` has [second, records], at most one a second. */
export function sparkline(seconds) {
  const full = seconds.slice(0, -1).slice(-60);  // the last second is not over
  const most = Math.max(1, ...full.map(([, sent]) => sent));
  const last = full.slice(-3);
  const rate = last.length ? Math.round(last.reduce((sum, [, sent]) => sum + sent, 0) / last.length) : 0;
  const start = (full.at(-1)?.[0] ?? 0) - 59;
  const points = full.map(([second, sent]) => `${((second - start) / 59) * 160},${(27 - (sent / most) * 25).toFixed(1)}`);
  return [
    svg("svg", { viewBox: "0 0 160 28", class: "spark-line", role: "img", "aria-label": `${number(rate)} records per second` },
      svg("line", { x1: 0, x2: 160, y1: 27.5, y2: 27.5, class: "axis" }),
      svg("polyline", { points: points.join(" ") })),
    el("span", { class: "spark-text" }, el("strong", {}, number(rate)), " records/s"),
  ];
}
