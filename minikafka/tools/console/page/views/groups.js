// The views of all consumer groups, and of one: members, lag, and rebalances with their causes.

import { get, polled, segment } from "../lib/api.js";
import { button, el, fill, headline, link, set, svg } from "../lib/dom.js";
import { count, listed, moment, number } from "../lib/format.js";
import { Table, fact, once } from "../lib/table.js";
import { gapOf, problemOf, whyPanel } from "./why.js";

export class GroupsView {
  title = "Groups";

  constructor() {
    this.problem = el("div", {});
    this.table = new Table({
      label: "Consumer groups",
      keyOf: (group) => group.group,
      empty: "No consumer group has committed an offset or joined yet. Try: minikafka consume TOPIC --group NAME",
      columns: [
        {
          name: "Group",
          className: "name",
          node: (group, cell) => once(cell, () => link(group.group, "groups", group.group)),
        },
        { name: "State", text: (group) => group.state ?? "–" },
        { name: "Members", className: "number", text: (group) => number(sizeOf(group.members)) },
        { name: "Lag", className: "number", text: (group) => number(group.lag) },
        { name: "Protocol", text: (group) => group.protocol || "–" },
        { name: "Coordinator", text: (group) => (group.coordinator >= 0 ? `broker ${group.coordinator}` : "none") },
      ],
    });
    this.element = el(
      "div",
      { class: "view" },
      headline("Consumer groups"),
      this.problem,
      el("section", { class: "panel flush" }, this.table.element),
    );
    this.stop = polled(() => this.load(), 2000);
  }

  async load() {
    try {
      const groups = await get("api/groups");
      fill(this.problem);
      this.table.show([...groups].sort((a, b) => a.group.localeCompare(b.group)));
    } catch (error) {
      fill(this.problem, problemOf(error));
    }
  }

  update() {}

  close() {
    this.stop();
  }
}

const sizeOf = (members) => (Array.isArray(members) ? members.length : members);

export class GroupView {
  constructor(context, group) {
    Object.assign(this, { context, group, title: group });
    this.problem = el("div", {});
    this.facts = el("dl", { class: "facts" });
    this.why = whyPanel(`why/group/${segment(group)}`);
    this.members = memberTable();
    this.offsets = this.offsetTable();
    this.rebalances = rebalanceTable();
    this.element = el(
      "div",
      { class: "view" },
      headline(
        group,
        "consumer group",
        button("Why?", () => this.why.load(), { disabled: context.model.isReplay }),
      ),
      this.problem,
      this.facts,
      this.why.element,
      section("Members", this.members.element),
      section("Lag", this.offsets.element),
      section("Rebalances", this.rebalances.element),
    );
    this.stop = polled(() => this.load(), 1500);
  }

  offsetTable() {
    return new Table({
      label: "Lag of each partition",
      keyOf: (row) => `${row.topic}-${row.partition}`,
      empty: "The group has committed no offset.",
      columns: [
        {
          name: "Partition",
          className: "name",
          node: (row, cell) =>
            once(cell, () => link(`${row.topic}-${row.partition}`, "partition", row.topic, row.partition)),
        },
        { name: "Committed", className: "number", text: (row) => number(row.committed) },
        { name: "End", className: "number", text: (row) => number(row.end) },
        { name: "Lag", className: "number", text: (row) => number(row.lag) },
        { name: "Member", className: "mono words", text: (row) => row.member ?? "–" },
        { name: "Share of the largest lag", className: "lag", node: (row, cell) => this.lagBar(row, cell) },
      ],
    });
  }

  lagBar(row, cell) {
    const picture = once(cell, () =>
      svg(
        "svg",
        { height: 10, width: "100%", "aria-hidden": "true" },
        svg("rect", { class: "track", width: "100%", height: 10, rx: 2 }),
        svg("rect", { class: "lag-bar", height: 10, rx: 2 }),
      ),
    );
    set(picture.lastChild, "width", `${this.most ? (Math.max(0, row.lag ?? 0) / this.most) * 100 : 0}%`);
    return picture;
  }

  async load() {
    try {
      this.show(await get(`api/groups/${segment(this.group)}`));
    } catch (error) {
      fill(this.problem, problemOf(error));
    }
  }

  show({ state, coordinator, members, offsets, rebalances, unseen = [] }) {
    fill(this.problem, unseen.map(gapOf));
    this.most = Math.max(0, ...offsets.map((row) => row.lag ?? 0));
    const lag = offsets.reduce((sum, row) => sum + Math.max(0, row.lag ?? 0), 0);
    fill(
      this.facts,
      state && fact("State", state),
      coordinator >= 0 && fact("Coordinator", `broker ${coordinator}`),
      fact("Members", count(members.length, "member")),
      fact("Lag", count(lag, "record")),
    );
    this.members.show(members);
    this.offsets.show(offsets);
    this.rebalances.show([...rebalances].sort((a, b) => b.time_ms - a.time_ms));
  }

  update() {}

  close() {
    this.stop();
  }
}

function memberTable() {
  return new Table({
    label: "Members",
    keyOf: (member) => member.id,
    empty: "The group has no members.",
    columns: [
      { name: "Member", className: "name mono", text: (member) => member.id },
      { name: "Client id", text: (member) => member.client_id || "–" },
      { name: "Host", text: (member) => member.host || "–" },
      { name: "Partitions", className: "words", text: (member) => listed(member.partitions) },
    ],
  });
}

function rebalanceTable() {
  return new Table({
    label: "Rebalances",
    keyOf: (row) => `${row.time_ms} ${row.generation} ${row.text}`,
    empty: "The ledgers name no rebalance of this group.",
    columns: [
      { name: "Time", className: "mono time", text: (row) => moment(row.time_ms) },
      { name: "Generation", className: "number", text: (row) => number(row.generation) },
      { name: "Cause", className: "words", text: (row) => row.cause ?? "–" },
      { name: "What happened", className: "words", text: (row) => row.text ?? "" },
    ],
  });
}

function section(title, content) {
  return el(
    "section",
    { class: "panel flush", "aria-label": title },
    el("div", { class: "bar" }, el("h2", {}, title)),
    content,
  );
}
