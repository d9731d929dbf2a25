// A driver of the client matrix with kafkajs: `node driver.js VERB …`.
// The verbs and their output are described in tests/support/client_drivers.py.
const {
  Kafka, CompressionTypes, CompressionCodecs, AssignerProtocol, logLevel,
} = require('kafkajs')
const { login, attempt, rights } = require('./security')
CompressionCodecs[CompressionTypes.Snappy] = require('kafkajs-snappy')

const say = (fact) => process.stdout.write(JSON.stringify(fact) + '\n')
const inputEnds = () => new Promise((resolve) => process.stdin.on('end', resolve).resume())
const record = (number) => ({ key: String(number % 7), value: String(number) })
const clientOf = (bootstrap) =>
  new Kafka({ clientId: 'kafkajs', brokers: bootstrap.split(','), logLevel: logLevel.NOTHING, ...login(),
    retry: { initialRetryTime: 100, retries: 20, maxRetryTime: 300 } })
const CODECS = { none: CompressionTypes.None, gzip: CompressionTypes.GZIP, snappy: CompressionTypes.Snappy }

async function produce(bootstrap, topic, codec, first, count) {
  const producer = clientOf(bootstrap).producer({ idempotent: true })
  await producer.connect()
  const messages = Array.from({ length: Number(count) }, (_, i) => record(Number(first) + i))
  await producer.send({ topic, messages, acks: -1, compression: CODECS[codec] })
  await producer.disconnect()
}

async function stream(bootstrap, topic) {
  const producer = clientOf(bootstrap).producer()
  await producer.connect()
  let ended = false
  inputEnds().then(() => { ended = true })
  for (let number = 0; !ended; number++) {
    await producer.send({ topic, messages: [{ value: String(number) }], acks: -1 })
    say({ acked: number })
    await new Promise((resolve) => setTimeout(resolve, 5)) // the consumer commits every record
  }
  await producer.disconnect()
}

async function transactional(bootstrap, transactionalId) {
  const producer = clientOf(bootstrap).producer({ transactionalId, maxInFlightRequests: 1, idempotent: true })
  await producer.connect()
  return producer
}

async function transact(bootstrap, topic, id, first, count, ends) {
  const ended = inputEnds()
  const producer = await transactional(bootstrap, id)
  let next = Number(first)
  try {
    for (const end of ends.split(',')) {
      const transaction = await producer.transaction()
      const messages = Array.from({ length: Number(count) }, () => record(next++))
      await transaction.send({ topic, messages, acks: -1 })
      if (end === 'hold') {
        say({ open: true })
        await ended
      }
      await (end === 'abort' ? transaction.abort() : transaction.commit())
      say({ ended: end })
    }
  } catch (refused) {
    say({ fenced: refused.type || refused.name })
  }
  await producer.disconnect()
  process.exit(0)
}

async function copy(bootstrap, source, target, groupId, id) {
  const producer = await transactional(bootstrap, id)
  const consumer = clientOf(bootstrap).consumer({
    groupId, sessionTimeout: 30000, heartbeatInterval: 300, rebalanceTimeout: 30000, maxWaitTimeInMs: 200,
  })
  await consumer.connect()
  await consumer.subscribe({ topics: [source], fromBeginning: true })
  await consumer.run({
    autoCommit: false,
    eachBatch: async ({ batch: { partition, messages }, resolveOffset }) => {
      const transaction = await producer.transaction()
      await transaction.send({
        topic: target, messages: messages.map(({ key, value }) => ({ key, value })), acks: -1,
      })
      const offset = String(Number(messages[messages.length - 1].offset) + 1)
      await transaction.sendOffsets({
        consumerGroupId: groupId, topics: [{ topic: source, partitions: [{ partition, offset }] }],
      })
      await transaction.commit()
      resolveOffset(messages[messages.length - 1].offset)
      say({ copied: messages.map(({ value }) => Number(value)) })
    },
  })
  await inputEnds()
  await consumer.disconnect()
  await producer.disconnect()
}

async function consume(bootstrap, topic, groupId, assignor, instance, isolation) {
  const consumer = clientOf(bootstrap).consumer({
    groupId, readUncommitted: isolation === 'read_uncommitted', sessionTimeout: 30000, heartbeatInterval: 300, rebalanceTimeout: 30000,
    metadataMaxAge: 1000, maxWaitTimeInMs: 200,
  })
  consumer.on(consumer.events.GROUP_JOIN, ({ payload }) =>
    say({ assigned: payload.memberAssignment[topic] || [] }))
  consumer.on(consumer.events.REBALANCING, () => say({ revoked: null }))
  await consumer.connect()
  await consumer.subscribe({ topics: [topic], fromBeginning: true })
  await consumer.run({
    autoCommit: false,
    eachMessage: async ({ partition, message }) => {
      say({ value: Number(message.value), partition, offset: Number(message.offset) })
      try {
        await consumer.commitOffsets([{ topic, partition, offset: String(Number(message.offset) + 1) }])
      } catch (refused) {
        say({ refused: refused.type || refused.name })
      }
    },
  })
  await inputEnds()
  await consumer.disconnect()
}

async function time(bootstrap, topic, partitions, timestamp) {
  const admin = clientOf(bootstrap).admin()
  await admin.connect()
  const ends = await admin.fetchTopicOffsets(topic)
  const found = await admin.fetchTopicOffsetsByTimestamp(topic, Number(timestamp))
  await admin.disconnect()
  // kafkajs returns the end offset where no record is that late.
  const high = Object.fromEntries(ends.map((end) => [end.partition, end.high]))
  const offsets = found.map(({ partition, offset }) =>
    [partition, offset === high[partition] ? -1 : Number(offset)])
  say({ offsets: Object.fromEntries(offsets) })
}

async function admin(bootstrap, topic, partitions) {
  const client = clientOf(bootstrap).admin()
  await client.connect()
  await client.createTopics({
    topics: [{ topic, numPartitions: Number(partitions), replicationFactor: 3 }],
  })
  const { topics } = await client.fetchTopicMetadata({ topics: [topic] })
  await client.deleteTopics({ topics: [topic] })
  await client.disconnect()
  say({ partitions: topics[0].partitions.length })
}

const verbs = {
  produce, stream, transact, copy, consume, time, admin,
  attempt: async (...names) => say(await attempt(...names)),
  rights: async (...names) => say(await rights(...names)),
}
verbs[process.argv[2]](...process.argv.slice(3)).catch((error) => {
  process.stderr.write(`${error.stack}\n`)
  process.exit(1)
})
