// How kafkajs connects with a login, and the administration of rights: used by driver.js.
const fs = require('fs')
const {
  Kafka, logLevel, AclResourceTypes, AclOperationTypes, AclPermissionTypes, ResourcePatternTypes,
} = require('kafkajs')

// Returns the options of the login that MATRIX_LOGIN names.
function login() {
  const name = process.env.MATRIX_LOGIN
  if (!name) return {}
  const { ca, chain, key, mechanism, user, password, token } = JSON.parse(fs.readFileSync(`${name}.json`))
  const read = (file) => (file ? fs.readFileSync(file, 'utf8') : undefined)
  const sasl = token
    ? { mechanism: 'oauthbearer', oauthBearerProvider: async () => ({ value: token }) }
    : { mechanism, username: user, password }
  return {
    ...(ca && { ssl: { ca: [read(ca)], cert: read(chain), key: read(key) } }),
    ...(mechanism && { sasl }),
    // kafkajs authenticates again this long before a session ends. Brokers refuse it in the first second of a session.
    reauthenticationThreshold: 500,
  }
}

const clientOf = (bootstrap) =>
  new Kafka({ brokers: bootstrap.split(','), logLevel: logLevel.NOTHING, retry: { retries: 2 }, ...login() })

async function attempt(bootstrap, topic) {
  const producer = clientOf(bootstrap).producer()
  try {
    await producer.connect()
    await producer.send({ topic, messages: [{ value: '0' }], acks: -1 })
    await producer.disconnect()
    return { acked: 0 }
  } catch (refused) {
    const cause = refused.cause || refused
    return { error: cause.name, code: cause.code ?? null, text: cause.message }
  }
}

// kafkajs has neither SCRAM credentials, quotas nor authorized operations.
async function rights(bootstrap, topic) {
  const admin = clientOf(bootstrap).admin()
  await admin.connect()
  const filter = { resourceType: AclResourceTypes.TOPIC, resourceName: topic, resourcePatternType: ResourcePatternTypes.LITERAL }
  const entry = { principal: 'User:bob', host: '*', operation: AclOperationTypes.READ, permissionType: AclPermissionTypes.ALLOW }
  await admin.createAcls({ acl: [{ ...filter, ...entry }] })
  const any = { ...filter, operation: AclOperationTypes.ANY, permissionType: AclPermissionTypes.ANY }
  let resources = []
  while (!resources.length) { // the broker that was asked may not know it yet
    resources = (await admin.describeAcls(any)).resources
  }
  const { filterResponses } = await admin.deleteAcls({ filters: [any] })
  await admin.disconnect()
  return {
    acls: resources.flatMap(({ acls }) => acls.map(({ principal }) => principal)),
    deleted: filterResponses.flatMap(({ matchingAcls }) => matchingAcls.map(({ principal }) => principal)),
  }
}

module.exports = { login, attempt, rights }
