// A test of a Node.js program with a real cluster: minikafka run -- npm test
const assert = require("node:assert");
const fs = require("node:fs");
const os = require("node:os");
const path = require("node:path");
const test = require("node:test");
const { Kafka, logLevel } = require("kafkajs");

const topic = "orders-npm";
const file = path.join(process.env.MINIKAFKA_HISTORY || os.tmpdir(), "npm.jsonl");

// Writes an event of docs/isolation.md to a file that `minikafka run` judges.
function note(client, number, event, outcome, facts) {
  const line = { client, number, event, outcome, topic, ...facts, time: Date.now() / 1000 };
  fs.appendFileSync(file, JSON.stringify(line) + "\n");
}

test("orders arrive", { timeout: 60_000 }, async () => {
  const brokers = process.env.KAFKA_BOOTSTRAP_SERVERS.split(",");
  const kafka = new Kafka({ brokers, logLevel: logLevel.NOTHING });
  const admin = kafka.admin();
  await admin.connect();
  await admin.createTopics({ topics: [{ topic }], waitForLeaders: true });
  await admin.disconnect();
  const producer = kafka.producer({ allowAutoTopicCreation: false });
  await producer.connect();
  for (const [number, value] of ["7 apples", "2 pears"].entries()) {
    note("npm-producer", number, "write", "invoked", { value });
    const [made] = await producer.send({ topic, messages: [{ value }] });
    note("npm-producer", number, "write", "ok", { value, partition: made.partition, offset: Number(made.baseOffset) });
  }
  await producer.disconnect();
  const consumer = kafka.consumer({ groupId: "orders-npm" });
  await consumer.connect();
  await consumer.subscribe({ topic, fromBeginning: true });
  const values = [];
  await new Promise((resolve) => {
    consumer.run({
      eachMessage: async ({ partition, message }) => {
        const value = message.value.toString();
        const place = { value, partition, offset: Number(message.offset), group: "orders-npm" };
        note("npm-consumer", values.push(value), "read", "ok", place);
        if (values.length === 2) resolve();
      },
    });
  });
  await consumer.disconnect();
  assert.deepStrictEqual(values.sort(), ["2 pears", "7 apples"]);
});
