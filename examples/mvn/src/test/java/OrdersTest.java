import static org.junit.jupiter.api.Assertions.assertEquals;

import java.io.IOException;
import java.io.UncheckedIOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.nio.file.StandardOpenOption;
import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.serialization.StringDeserializer;
import org.apache.kafka.common.serialization.StringSerializer;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;

class OrdersTest {
    private static final String TOPIC = "orders-mvn";
    private static final String DIRECTORY =
        System.getenv().getOrDefault("MINIKAFKA_HISTORY", System.getProperty("java.io.tmpdir"));
    private static final Map<String, Object> SERVERS =
        Map.of("bootstrap.servers", System.getenv("KAFKA_BOOTSTRAP_SERVERS"));

    /** Write an event of docs/isolation.md to a file that `minikafka run` judges. */
    private static void note(String client, int number, String event, String outcome, String value, String place) {
        String line = String.format(
            "{\"client\":\"%s\",\"number\":%d,\"event\":\"%s\",\"outcome\":\"%s\",\"topic\":\"%s\",\"value\":\"%s\"%s,\"time\":%d.%03d}%n",
            client, number, event, outcome, TOPIC, value, place,
            System.currentTimeMillis() / 1000, System.currentTimeMillis() % 1000);
        try {
            Files.writeString(Path.of(DIRECTORY, "mvn.jsonl"), line, StandardOpenOption.CREATE, StandardOpenOption.APPEND);
        } catch (IOException error) {
            throw new UncheckedIOException(error);
        }
    }

    private static String place(int partition, long offset) {
        return String.format(",\"partition\":%d,\"offset\":%d", partition, offset);
    }

    @Test
    @Timeout(60)
    void ordersArrive() throws Exception {
        List<String> orders = List.of("7 apples", "2 pears");
        try (var producer = new KafkaProducer<>(SERVERS, new StringSerializer(), new StringSerializer())) {
            for (int number = 0; number < orders.size(); number++) {
                String value = orders.get(number);
                note("mvn-producer", number, "write", "invoked", value, "");
                var made = producer.send(new ProducerRecord<>(TOPIC, 0, null, value)).get();
                note("mvn-producer", number, "write", "ok", value, place(made.partition(), made.offset()));
            }
        }
        Map<String, Object> config = Map.of(
            "bootstrap.servers", SERVERS.get("bootstrap.servers"), "group.id", TOPIC, "auto.offset.reset", "earliest");
        List<String> values = new ArrayList<>();
        try (var consumer = new KafkaConsumer<>(config, new StringDeserializer(), new StringDeserializer())) {
            consumer.subscribe(List.of(TOPIC));
            while (values.size() < orders.size()) {
                for (var record : consumer.poll(Duration.ofMillis(100))) {
                    values.add(record.value());
                    String place = place(record.partition(), record.offset()) + ",\"group\":\"" + TOPIC + "\"";
                    note("mvn-consumer", values.size(), "read", "ok", record.value(), place);
                }
            }
        }
        assertEquals(orders, values);
    }
}
