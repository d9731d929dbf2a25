// Reads COUNT records of a topic in a consumer group with @platformatic/kafka, which names topics by id:
// `node read.mjs BOOTSTRAP TOPIC GROUP COUNT` prints the values as a JSON array.
import { Consumer, stringDeserializers } from '@platformatic/kafka'

const [bootstrap, topic, groupId, count] = process.argv.slice(2)
const consumer = new Consumer({
  clientId: 'platformatic', groupId, bootstrapBrokers: bootstrap.split(','), deserializers: stringDeserializers,
})
const stream = await consumer.consume({
  topics: [topic], mode: 'earliest', sessionTimeout: 10000, heartbeatInterval: 500,
})
const values = []
for await (const message of stream) {
  values.push(message.value)
  if (values.length === Number(count)) break
}
process.stdout.write(JSON.stringify(values) + '\n')
await consumer.close(true)
process.exit(0)
