import java.io.ByteArrayOutputStream;
import java.nio.charset.StandardCharsets;
import java.util.List;
import java.util.Properties;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerConfig;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.serialization.ByteArraySerializer;

/**
 * Publish dialogue turns to turnstate with kafka-clients: plain JSON, keyed by session.
 *
 * <p>{@code Publish 127.0.0.1:9092 turns acme chat-17} prints, for each turn, the partition and
 * the offset that Kafka gave it.
 */
public final class Publish {
  /** The key: two bytes with the length of the tenant's name in UTF-8, the tenant, the session. */
  static byte[] sessionKey(String tenant, String session) {
    byte[] name = tenant.getBytes(StandardCharsets.UTF_8);
    ByteArrayOutputStream key = new ByteArrayOutputStream();
    key.write(name.length >> 8);
    key.write(name.length);
    key.writeBytes(name);
    key.writeBytes(session.getBytes(StandardCharsets.UTF_8));
    return key.toByteArray();
  }

  public static void main(String[] arguments) throws Exception {
    String topic = arguments[1];
    String tenant = arguments[2];
    String session = arguments[3];
    Properties settings = new Properties();
    settings.put(ProducerConfig.BOOTSTRAP_SERVERS_CONFIG, arguments[0]);
    settings.put(ProducerConfig.ACKS_CONFIG, "all");
    settings.put(ProducerConfig.ENABLE_IDEMPOTENCE_CONFIG, true);
    settings.put(ProducerConfig.COMPRESSION_TYPE_CONFIG, "lz4");
    // The default partitioner is the right one: Murmur2 of the key.
    List<String> contents = List.of("Is the train to Bern on time?", "It is.");
    try (KafkaProducer<byte[], byte[]> producer =
        new KafkaProducer<>(settings, new ByteArraySerializer(), new ByteArraySerializer())) {
      for (int at = 0; at < contents.size(); at++) {
        // A JSON library writes this in earnest. An id makes a turn that is sent twice one turn.
        String turn =
            String.format(
                "{\"tenant\":\"%s\",\"session\":\"%s\",\"turn_id\":\"java-%d\","
                    + "\"role\":\"%s\",\"content\":\"%s\"}",
                tenant, session, at, at % 2 == 0 ? "user" : "assistant", contents.get(at));
        ProducerRecord<byte[], byte[]> record =
            new ProducerRecord<>(
                topic, sessionKey(tenant, session), turn.getBytes(StandardCharsets.UTF_8));
        record.headers().add("content-type", "application/json".getBytes(StandardCharsets.UTF_8));
        var told = producer.send(record).get();
        System.out.printf("{\"partition\":%d,\"offset\":%d}%n", told.partition(), told.offset());
      }
    }
  }
}
