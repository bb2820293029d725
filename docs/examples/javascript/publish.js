// Publish dialogue turns to turnstate with kafkajs: plain JSON, keyed by session.
//
//   npm install && node publish.js 127.0.0.1:9092 turns acme chat-17
//
// Prints, for each turn, the partition and the offset that Kafka gave it.
const { Kafka, Partitioners, logLevel } = require("kafkajs");

// The key: two bytes with the length of the tenant's name in UTF-8, the tenant,
// the session. No two pairs share a key, whatever letters they use.
function sessionKey(tenant, session) {
  const name = Buffer.from(tenant, "utf8");
  const length = Buffer.alloc(2);
  length.writeUInt16BE(name.length);
  return Buffer.concat([length, name, Buffer.from(session, "utf8")]);
}

async function main([broker, topic, tenant, session]) {
  const kafka = new Kafka({ brokers: [broker], logLevel: logLevel.ERROR });
  const producer = kafka.producer({
    createPartitioner: Partitioners.DefaultPartitioner, // Java's: Murmur2 of the key
    idempotent: true, // a retry is no second turn
    maxInFlightRequests: 1, // and does not change the order
  });
  await producer.connect();
  const turns = [
    { role: "user", content: "Is the train to Geneva on time?" },
    { role: "assistant", content: "It is five minutes late." },
  ];
  const told = await producer.send({
    topic,
    acks: -1, // all in-sync replicas
    messages: turns.map((turn, at) => ({
      key: sessionKey(tenant, session),
      // An id makes a turn that is sent twice one turn. No stamp, no clock.
      value: JSON.stringify({ tenant, session, turn_id: `js-${at}`, ...turn }),
      headers: { "content-type": "application/json", "request-id": `js-${at}` },
    })),
  });
  for (const { partition, baseOffset } of told) {
    console.log(JSON.stringify({ partition, offset: Number(baseOffset) }));
  }
  await producer.disconnect();
}

main(process.argv.slice(2)).catch((error) => {
  console.error(error.message);
  process.exit(1);
});
