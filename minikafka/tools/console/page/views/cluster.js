// The view of the whole cluster: brokers, problems, events, and every partition in a grid.

import { announce, el, fill, keyed, set, write } from "../lib/dom.js";
import { clock, count, number } from "../lib/format.js";
import { Grid } from "../lib/grid.js";
import { counts, partitionWords, sentence } from "../lib/health.js";
import { EPOCH, HIGH_WATERMARK, LOG_END, LOG_START, hasLeader, isPreferred, roleOf, severity } from "../lib/rows.js";
import { brokerCards } from "./brokers.js";
import { Overview, sparkline } from "./overview.js";

const FILTERS = {
  all: ["All", () => true],
  bad: ["With problems", (row) => severity(row) > 0],
  elsewhere: ["Leader not preferred", (row) => hasLeader(row) && !isPreferred(row)],
};
const EVENTS_SHOWN = 40;

export class ClusterView {
  title = "Cluster";
  chosen = "all";
  text = "";

  constructor(context) {
    this.context = context;
    this.model = context.model;
    this.health = el("p", { class: "health", role: "status" });
    this.cards = el("ul", { class: "cards", "aria-label": "Brokers and ZooKeeper" });
    this.spark = el("div", { class: "spark" });
    this.buildGrid();
    this.feed = el("ol", { class: "feed", "aria-label": "Last events" });
    this.element = el(
      "div",
      { class: "view cluster" },
      el("section", { "aria-label": "Health" }, el("div", { class: "headline" }, this.health, this.spark), this.cards),
      el("div", { class: "split" }, this.gridSection(), this.feedSection()),
    );
  }

  buildGrid() {
    this.grid = new Grid({
      label: "Partitions",
      columns: [],
      keyOf: (name) => name,
      rowClass: (name) => this.rowClass(name),
      open: (name) => this.context.open(name),
    });
    this.overview = new Overview(this.grid, (name) => severity(this.model.partitions.get(name)));
  }

  gridSection() {
    this.total = el("span", { class: "muted", role: "status" });
    this.search = el("input", {
      type: "search",
      placeholder: "Filter by name  ( / )",
      "aria-label": "Filter partitions by name",
      "data-filter": true,
      oninput: () => {
        this.text = this.search.value.trim();
        this.arrange();
      },
    });
    this.choices = el("div", { class: "segmented", role: "group", "aria-label": "Which partitions" });
    this.more = el(
      "button",
      { type: "button", onclick: () => this.context.more(), disabled: this.model.isReplay },
      "More actions…",
    );
    return el(
      "section",
      { class: "panel grow", "aria-label": "Partitions" },
      el("div", { class: "bar" }, el("h2", {}, "Partitions"), this.total, this.choices, this.search),
      el("div", { class: "grid-frame" }, this.grid.element, this.overview.element),
      legend(),
    );
  }

  feedSection() {
    return el(
      "section",
      { class: "panel side", "aria-label": "Events" },
      el("div", { class: "bar" }, el("h2", {}, "Events"), this.more),
      el("div", { class: "scroll", tabindex: 0, role: "region", "aria-label": "Event list" }, this.feed),
    );
  }

  update() {
    if (!this.model.cluster) return;
    this.found = counts(this.model);
    const { level, text } = sentence(this.model, this.found);
    set(this.health, "class", `health ${level}`);
    if (this.health.textContent !== text) announce(text);
    write(this.health, text);
    fill(this.spark, sparkline(this.model.seconds));
    brokerCards(this.cards, this.context);
    this.drawColumns();
    this.drawChoices();
    this.arrange();
    this.drawFeed();
  }

  drawColumns() {
    const brokers = this.model.brokerIds;
    if (String(brokers) === this.shownBrokers) return;
    this.shownBrokers = String(brokers);
    this.grid.setColumns([
      { name: "Partition", className: "name", cell: (name) => ({ text: name }) },
      ...brokers.map((id) => this.brokerColumn(id)),
      this.column("Epoch", "narrow number", "Leader epoch", (row) => number(row[EPOCH])),
      this.column("Start", "start number", "First offset", (row) => number(row[LOG_START])),
      this.column("High watermark", "wide number", "", (row) => number(row[HIGH_WATERMARK])),
      this.column("Log end", "wide number", "", (row) => number(row[LOG_END])),
      this.column("State", "words", "", partitionWords),
    ]);
  }

  brokerColumn(id) {
    return {
      name: String(id),
      title: `Broker ${id}`,
      className: "mark",
      cell: (name) => {
        const role = roleOf(this.model.partitions.get(name), id);
        return {
          text: role.mark,
          className: `${role.state}${role.isPreferred ? " preferred" : ""}`,
          label: `broker ${id}: ${role.words}`,
        };
      },
    };
  }

  column(name, className, title, textOf) {
    return { name, className, title, cell: (key) => ({ text: textOf(this.model.partitions.get(key)) }) };
  }

  rowClass(name) {
    const level = ["", "warn", "bad"][severity(this.model.partitions.get(name))];
    const rate = this.model.rates.get(name);
    const isBusy = rate && Date.now() - rate.at < 1000;
    return `${level}${this.model.isFlashing(name) ? " flash" : ""}${isBusy ? " busy" : ""}`;
  }

  drawChoices() {
    const { found } = this;
    const totals = { all: found.all, bad: found.offline + found.under, elsewhere: found.elsewhere };
    keyed(
      this.choices,
      Object.keys(FILTERS),
      String,
      (name) =>
        el("button", {
          type: "button",
          "data-choice": name,
          onclick: () => {
            this.chosen = name;
            this.update();
          },
        }),
      (node, name) => {
        set(node, "aria-pressed", String(this.chosen === name));
        write(node, `${FILTERS[name][0]} ${number(totals[name])}`);
      },
    );
  }

  arrange() {
    const isShown = FILTERS[this.chosen][1];
    const text = this.text.toLowerCase();
    const isPlain = this.chosen === "all" && !text;
    const items = isPlain
      ? this.model.order
      : this.model.order.filter(
          (name) => name.toLowerCase().includes(text) && isShown(this.model.partitions.get(name)),
        );
    this.grid.setItems(items);
    this.overview.draw();
    write(
      this.total,
      items.length === this.model.order.length
        ? ""
        : `${number(items.length)} of ${count(this.model.order.length, "partition")}`,
    );
  }

  drawFeed() {
    const events = this.model.events.slice(-EVENTS_SHOWN).reverse();
    keyed(
      this.feed,
      events,
      (event) => event.key,
      (event) => el("li", {}, el("time", {}, clock(event.time, false)), el("span", {}, event.text)),
      (node, event) => write(node.lastChild, event.text),
    );
    if (!events.length) fill(this.feed, el("li", { class: "empty" }, "The ledgers have no events yet."));
  }

  close() {}
}

function legend() {
  const entry = (className, mark, text) =>
    el("li", {}, el("span", { class: `cell mark ${className}`, "aria-hidden": "true" }, mark), text);
  return el(
    "ul",
    { class: "legend", "aria-label": "Marks" },
    entry("leader", "L", "leader"),
    entry("insync", "●", "in sync"),
    entry("lagging", "○", "not in sync"),
    entry("offline", "✕", "offline"),
    entry("insync preferred", "●", "underlined: preferred leader"),
  );
}
