// The cards of the brokers and of ZooKeeper, with the buttons that kill, pause, resume, stop and start them.

import { el, keyed, set, write } from "../lib/dom.js";
import { bytes, number } from "../lib/format.js";

const MARKS = { running: "●", paused: "❚❚", down: "✕", unreachable: "?" };
const VERBS = {
  running: ["kill", "pause", "stop"],
  paused: ["resume", "kill"],
  down: ["start"],
  unreachable: ["resume", "kill", "start"],
};
const LABELS = { kill: "Kill", pause: "Pause", resume: "Resume", stop: "Stop", start: "Start" };

/** Draw the cards of all brokers, and of ZooKeeper. */
export function brokerCards(list, context) {
  const { model } = context;
  const nodes = model.brokerIds.map((id) => brokerOf(model, model.brokers.get(id)));
  if (model.cluster.zookeeper?.address) nodes.push(zookeeperOf(model.cluster.zookeeper));
  keyed(
    list,
    nodes,
    (node) => node.key,
    () => newCard(),
    (card, node) => drawCard(card, node, context),
  );
}

function brokerOf(model, broker) {
  return {
    key: String(broker.id),
    name: `Broker ${broker.id}`,
    state: broker.state,
    address: broker.host ? `${broker.host}:${broker.port}` : "",
    lines: [
      ["Leads", `${number(broker.leaders)}, preferred for ${number(broker.preferred)}`],
      ["Replicas", number(broker.replicas)],
      ...(broker.bytes_in === null || broker.bytes_in === undefined
        ? []
        : [["Traffic", `${bytes(Math.round(broker.bytes_in))}/s in, ${bytes(Math.round(broker.bytes_out))}/s out`]]),
      ...(broker.rack ? [["Rack", broker.rack]] : []),
    ],
    note: noteOf(model, broker),
  };
}

function noteOf(model, broker) {
  if (broker.state !== "running") return broker.reason ?? "";
  if (broker.session && broker.session !== "connected") return `session: ${broker.session}`;
  return model.cluster.controller === broker.id ? `controller, epoch ${number(model.cluster.controller_epoch)}` : "";
}

function zookeeperOf({ address, state }) {
  return {
    key: "zookeeper",
    name: "ZooKeeper",
    state: state ?? "running",
    address: address ?? "",
    lines: [],
    note: "",
  };
}

function newCard() {
  const card = el("li", { class: "card" });
  card.title_ = el("h2", {});
  card.state_ = el("span", { class: "state" });
  card.address_ = el("p", { class: "muted mono" });
  card.note_ = el("p", { class: "note" });
  card.lines_ = el("dl", {});
  card.verbs_ = el("div", { class: "buttons" });
  card.append(
    el("div", { class: "card-top" }, card.title_, card.state_),
    card.address_,
    card.note_,
    card.lines_,
    card.verbs_,
  );
  return card;
}

function drawCard(card, node, context) {
  set(card, "class", `card ${node.state}`);
  set(card, "data-broker", node.key);
  write(card.title_, node.name);
  write(card.state_, `${MARKS[node.state] ?? "?"} ${node.state}`);
  write(card.address_, node.address);
  write(card.note_, node.note);
  set(card.note_, "class", `note${node.note.startsWith("session") ? " warn" : ""}`);
  keyed(
    card.lines_,
    node.lines,
    ([name]) => name,
    ([name]) => el("div", {}, el("dt", {}, name), el("dd", {})),
    (line, [, value]) => write(line.lastChild, value),
  );
  const verbs = context.model.cluster.can_stop_processes === false ? [] : (VERBS[node.state] ?? ["kill", "start"]);
  keyed(card.verbs_, verbs, String, (verb) => verbButton(verb, node, context));
}

function verbButton(verb, node, context) {
  const title = `${LABELS[verb]} ${node.name.replace("Broker", "broker")}`;
  const run = () => context.act({ action: verb, arguments: { broker: node.key }, title, dangerous: verb === "kill" });
  return el(
    "button",
    {
      type: "button",
      class: verb === "kill" ? "danger" : "",
      "data-action": verb,
      disabled: context.model.isReplay,
      "aria-label": title,
      onclick: run,
    },
    LABELS[verb],
  );
}
