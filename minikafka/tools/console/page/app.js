// The page of the console: one view at a time, and one stream of events from the server for all of them.

import { ApiError, askFor, events, get, hasToken } from "./lib/api.js";
import { announce, el, fill, hashOf, set } from "./lib/dom.js";
import { eventOf } from "./lib/feed.js";
import { startKeys } from "./lib/keys.js";
import { Model } from "./lib/model.js";
import { split } from "./lib/rows.js";
import { startTheme } from "./lib/theme.js";
import { ActionDialog, openAll } from "./views/actions.js";
import { ClusterView } from "./views/cluster.js";
import { GroupView, GroupsView } from "./views/groups.js";
import { PartitionView } from "./views/partition.js";
import { Replay } from "./views/replay.js";
import { drawStatus } from "./views/status.js";
import { TopicView } from "./views/topic.js";
import { TopicsView } from "./views/topics.js";
import { TransactionsView } from "./views/transactions.js";

const VIEWS = [
  ["cluster", "Cluster"],
  ["topics", "Topics"],
  ["groups", "Groups"],
  ["transactions", "Transactions"],
];
const RETRY_MS = 2000;
const HIDDEN_MS = 5000;

const byId = (id) => document.getElementById(id);
const model = new Model();
const context = {
  model,
  act: (request) => new ActionDialog(request).open(),
  more: openAll,
  at: null, // the time of a replay, null at its end and in the present
  open: (name) => context.go("partition", ...split(name)),
  go: (...path) => {
    location.hash = hashOf(...path);
  },
};
let view = null;
let source = null;
let lost = null;
let hiding = 0;
let refusal = null;
let asked = {}; // what the stream was asked for

function pathOfHash() {
  return location.hash.replace(/^#\/?/, "").split("/").filter(Boolean).map(decodeURIComponent);
}

function viewOf([name, first, second]) {
  if (name === "topics") return first ? new TopicView(context, first) : new TopicsView(context);
  if (name === "groups") return first ? new GroupView(context, first) : new GroupsView(context);
  if (name === "transactions") return new TransactionsView(context);
  if (name === "partition" && second) return new PartitionView(context, first, second);
  return new ClusterView(context);
}

/** Show the view that the address names. */
function route(event) {
  view?.close();
  const path = pathOfHash();
  view = viewOf(path);
  const tab = path[0] === "partition" ? "cluster" : VIEWS.some(([name]) => name === path[0]) ? path[0] : "cluster";
  for (const each of byId("views").children) set(each, "aria-current", each.dataset.view === tab ? "page" : null);
  fill(byId("content"), view.element);
  document.title = `${view.title} – minikafka`;
  view.update();
  if (event) {
    byId("content").focus({ preventScroll: true });
    announce(`${view.title}`);
  }
}

function back() {
  const [name, topic] = pathOfHash();
  if (name === "partition") context.go("cluster");
  else if (topic) context.go(name);
}

/** Connect to the stream of the server. A connection that is lost is made again by the browser, or else by a timer. */
function connect(parameters = {}) {
  source?.close();
  asked = parameters;
  source = events("api/stream", parameters);
  const on = (name, receive) =>
    source.addEventListener(name, (event) => receive(JSON.parse(event.data), event.lastEventId));
  on("snapshot", receiveSnapshot);
  on("frame", (frame) => model.apply(frame));
  on("ledger", receiveLine);
  on("unseen", ({ what, reason }) => model.setUnseen(what, reason));
  on("seen", ({ what }) => model.setUnseen(what, null));
  source.onopen = () => {
    lost = null;
    refusal = null;
    draw();
  };
  source.onerror = () => disconnected(parameters);
}

function receiveSnapshot(cluster) {
  model.unseen = new Map((cluster.unseen ?? []).map(({ what, reason }) => [what, { reason, since: Date.now() }]));
  const isFirst = model.cluster === null;
  if (cluster.live === false) model.forgetEvents();
  model.reset(cluster);
  if (isFirst) {
    route();
    if (model.isReplay) startReplay();
  }
}

function receiveLine(line, id) {
  const event = eventOf(line, id);
  if (event) model.addEvent(event);
}

async function disconnected(parameters) {
  lost ??= Date.now();
  draw();
  if (source.readyState !== EventSource.CLOSED) return;
  try {
    await get("api/actions");
  } catch (error) {
    refusal = error instanceof ApiError && error.status >= 400 ? error : null;
  }
  draw();
  setTimeout(() => document.hidden || connect(parameters), RETRY_MS);
}

/** Close the stream while nobody sees the page: a browser has six connections to a server, for all of its tabs. */
function visibilityChanged() {
  clearTimeout(hiding);
  if (document.hidden) hiding = setTimeout(() => source.close(), HIDDEN_MS);
  else if (source.readyState === EventSource.CLOSED) connect(asked);
}

async function startReplay() {
  const replay = new Replay(byId("replay"), (time) => {
    context.at = time;
    askFor(time);
    connect({ at: time });
    view.load?.();
  });
  context.seek = (time) => replay.go(time ?? replay.to);
  try {
    await replay.load();
  } catch (error) {
    refusal = error;
    draw();
  }
}

let isDrawing = false;
let isPressed = false;

/** Keep the page still while a button is pressed: a click counts only if the button is still there when it ends. */
function holdStill(isHeld) {
  isPressed = isHeld;
  if (!isHeld) draw();
}

function draw() {
  if (isDrawing || isPressed) return;
  isDrawing = true;
  requestAnimationFrame(() => {
    isDrawing = false;
    if (isPressed) return;
    drawStatus(model, { lost, refusal });
    view?.update();
  });
}

function start() {
  fill(
    byId("views"),
    VIEWS.map(([name, title]) => el("a", { href: hashOf(name), "data-view": name }, title)),
  );
  startTheme(byId("theme"));
  startKeys({ go: context.go, back, theme: byId("theme"), help: byId("keys") });
  if (!hasToken) {
    refusal = {
      message: "The address of this page has no token.",
      hint: "Open the whole address that `minikafka console` has printed.",
    };
    return draw();
  }
  addEventListener("hashchange", route);
  addEventListener("pointerdown", () => holdStill(true));
  for (const end of ["pointerup", "pointercancel", "blur"]) addEventListener(end, () => holdStill(false));
  document.addEventListener("visibilitychange", visibilityChanged);
  model.addEventListener("change", draw);
  fill(byId("content"), el("p", { class: "empty" }, "Reading the state of the cluster …"));
  return connect();
}

start();
