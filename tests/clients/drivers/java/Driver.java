// A driver of the client matrix with Apache Kafka's Java client: `java … Driver VERB …`.
// The verbs and their output are described in tests/support/client_drivers.py.

import java.time.Duration;
import java.util.ArrayList;
import java.util.Collection;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.TreeMap;
import java.util.concurrent.Future;
import java.util.stream.Collectors;
import java.util.stream.IntStream;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.NewTopic;
import org.apache.kafka.clients.consumer.ConsumerRebalanceListener;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.ConsumerRecords;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.clients.producer.RecordMetadata;
import org.apache.kafka.common.KafkaException;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.serialization.StringDeserializer;
import org.apache.kafka.common.serialization.StringSerializer;

public class Driver {
    private static volatile boolean ended = false;

    static synchronized void say(String json) {
        System.out.println(json);
        System.out.flush();
    }

    private static void watchInput() {
        Thread watcher = new Thread(() -> {
            try {
                while (System.in.read() >= 0) { }
            } catch (java.io.IOException ignored) { }
            ended = true;
        });
        watcher.setDaemon(true);
        watcher.start();
    }

    private static KafkaProducer<String, String> producer(String bootstrap, String codec) {
        Properties settings = new Properties();
        settings.put("bootstrap.servers", bootstrap);
        settings.put("compression.type", codec);
        settings.put("linger.ms", "5");
        settings.putAll(Security.login());
        return new KafkaProducer<>(settings, new StringSerializer(), new StringSerializer());
    }

    private static KafkaConsumer<String, String> consumer(String bootstrap, Map<String, String> more) {
        Properties settings = new Properties();
        settings.put("bootstrap.servers", bootstrap);
        settings.putAll(more);
        settings.putAll(Security.login());
        return new KafkaConsumer<>(settings, new StringDeserializer(), new StringDeserializer());
    }

    private static void produce(String bootstrap, String topic, String codec, int first, int count) throws Exception {
        try (KafkaProducer<String, String> producer = producer(bootstrap, codec)) {
            List<Future<RecordMetadata>> sent = new ArrayList<>();
            for (int n = first; n < first + count; n++) {
                sent.add(producer.send(new ProducerRecord<>(topic, "" + n % 7, "" + n)));
            }
            for (Future<RecordMetadata> one : sent) {
                one.get();
            }
        }
    }

    private static void stream(String bootstrap, String topic) throws Exception {
        watchInput();
        try (KafkaProducer<String, String> producer = producer(bootstrap, "none")) {
            List<Future<RecordMetadata>> sent = new ArrayList<>();
            for (int n = 0; !ended; n++) {
                int number = n;
                sent.add(producer.send(new ProducerRecord<>(topic, "" + n), (metadata, error) -> {
                    if (error == null) {
                        say("{\"acked\": " + number + "}");
                    }
                }));
                Thread.sleep(5);
            }
            for (Future<RecordMetadata> one : sent) {
                one.get();
            }
        }
    }

    private static void consume(
            String bootstrap, String topic, String group, String assignor, String instance, String isolation) {
        Map<String, String> settings = new HashMap<>(Map.of(
            "group.id", group, "auto.offset.reset", "earliest", "enable.auto.commit", "false",
            "session.timeout.ms", "30000", "heartbeat.interval.ms", "300", "metadata.max.age.ms", "1000",
            "partition.assignment.strategy", "org.apache.kafka.clients.consumer."
                + (assignor.equals("cooperative") ? "CooperativeStickyAssignor" : "RangeAssignor")));
        if (!isolation.isEmpty()) {
            settings.put("isolation.level", isolation);
        }
        if (!instance.isEmpty()) {
            settings.put("group.instance.id", instance);
        }
        watchInput();
        try (KafkaConsumer<String, String> consumer = consumer(bootstrap, settings)) {
            consumer.subscribe(List.of(topic), new ConsumerRebalanceListener() {
                @Override
                public void onPartitionsRevoked(Collection<TopicPartition> partitions) {
                    say("{\"revoked\": " + numbers(partitions) + "}");
                }

                @Override
                public void onPartitionsAssigned(Collection<TopicPartition> partitions) {
                    say("{\"assigned\": " + numbers(partitions) + "}");
                }
            });
            while (!ended) {
                boolean any = false;
                for (ConsumerRecord<String, String> record : consumer.poll(Duration.ofMillis(100))) {
                    say("{\"value\": " + record.value() + ", \"partition\": " + record.partition()
                        + ", \"offset\": " + record.offset() + "}");
                    any = true;
                }
                if (any) {
                    try {
                        consumer.commitSync();
                    } catch (KafkaException refused) {
                        say("{\"refused\": \"" + refused.getClass().getSimpleName() + "\"}");
                    }
                }
            }
        }
    }

    private static void transact(
            String bootstrap, String topic, String id, int first, int count, String[] ends) throws Exception {
        watchInput();
        try (KafkaProducer<String, String> producer = transactional(bootstrap, id)) {
            int n = first;
            for (String end : ends) {
                producer.beginTransaction();
                for (int stop = n + count; n < stop; n++) {
                    producer.send(new ProducerRecord<>(topic, "" + n % 7, "" + n));
                }
                producer.flush();
                if (end.equals("hold")) {
                    say("{\"open\": true}");
                    while (!ended) {
                        Thread.sleep(5);
                    }
                }
                if (end.equals("abort")) {
                    producer.abortTransaction();
                } else {
                    producer.commitTransaction();
                }
                say("{\"ended\": \"" + end + "\"}");
            }
        } catch (KafkaException refused) {
            say("{\"fenced\": \"" + refused.getClass().getSimpleName() + "\"}");
        }
    }

    private static KafkaProducer<String, String> transactional(String bootstrap, String id) {
        Properties settings = new Properties();
        settings.put("bootstrap.servers", bootstrap);
        settings.put("transactional.id", id);
        settings.put("linger.ms", "5");
        KafkaProducer<String, String> producer =
            new KafkaProducer<>(settings, new StringSerializer(), new StringSerializer());
        producer.initTransactions();
        return producer;
    }

    private static void copy(String bootstrap, String source, String target, String group, String id) {
        watchInput();
        Map<String, String> settings = Map.of(
            "group.id", group, "auto.offset.reset", "earliest", "enable.auto.commit", "false",
            "isolation.level", "read_committed", "session.timeout.ms", "30000", "heartbeat.interval.ms", "300",
            "partition.assignment.strategy", "org.apache.kafka.clients.consumer.RangeAssignor");
        try (KafkaProducer<String, String> producer = transactional(bootstrap, id);
                KafkaConsumer<String, String> consumer = consumer(bootstrap, settings)) {
            consumer.subscribe(List.of(source));
            while (!ended) {
                ConsumerRecords<String, String> batch = consumer.poll(Duration.ofMillis(100));
                if (batch.isEmpty()) {
                    continue;
                }
                producer.beginTransaction();
                List<String> values = new ArrayList<>();
                Map<TopicPartition, OffsetAndMetadata> ends = new HashMap<>();
                try {
                    for (ConsumerRecord<String, String> record : batch) {
                        producer.send(new ProducerRecord<>(target, record.key(), record.value()));
                        values.add(record.value());
                        ends.put(new TopicPartition(source, record.partition()),
                            new OffsetAndMetadata(record.offset() + 1));
                    }
                    producer.sendOffsetsToTransaction(ends, consumer.groupMetadata());
                    producer.commitTransaction();
                    say("{\"copied\": " + values + "}");
                } catch (KafkaException refused) {
                    producer.abortTransaction();
                    rewind(consumer);
                    say("{\"refused\": \"" + refused.getClass().getSimpleName() + "\"}");
                }
            }
        }
    }

    private static void rewind(KafkaConsumer<String, String> consumer) {
        consumer.committed(consumer.assignment()).forEach((tp, committed) -> {
            if (committed == null) {
                consumer.seekToBeginning(List.of(tp));
            } else {
                consumer.seek(tp, committed.offset());
            }
        });
    }

    private static List<Integer> numbers(Collection<TopicPartition> partitions) {
        return partitions.stream().map(TopicPartition::partition).collect(Collectors.toList());
    }

    private static void time(String bootstrap, String topic, int partitions, long timestamp) {
        try (KafkaConsumer<String, String> consumer = consumer(bootstrap, Map.of())) {
            Map<TopicPartition, Long> asked = IntStream.range(0, partitions).boxed()
                .collect(Collectors.toMap(p -> new TopicPartition(topic, p), p -> timestamp));
            Map<Integer, Long> offsets = new TreeMap<>();
            consumer.offsetsForTimes(asked).forEach((tp, found) ->
                offsets.put(tp.partition(), found == null ? -1L : found.offset()));
            String fields = offsets.entrySet().stream()
                .map(e -> "\"" + e.getKey() + "\": " + e.getValue()).collect(Collectors.joining(", "));
            say("{\"offsets\": {" + fields + "}}");
        }
    }

    private static void admin(String bootstrap, String topic, int partitions) throws Exception {
        Properties settings = new Properties();
        settings.put("bootstrap.servers", bootstrap);
        try (Admin admin = Admin.create(settings)) {
            admin.createTopics(List.of(new NewTopic(topic, partitions, (short) 3))).all().get();
            int found = admin.describeTopics(List.of(topic)).allTopicNames().get().get(topic).partitions().size();
            admin.deleteTopics(List.of(topic)).all().get();
            say("{\"partitions\": " + found + "}");
        }
    }

    public static void main(String[] args) throws Exception {
        switch (args[0]) {
            case "produce" -> produce(args[1], args[2], args[3], Integer.parseInt(args[4]), Integer.parseInt(args[5]));
            case "stream" -> stream(args[1], args[2]);
            case "consume" -> consume(args[1], args[2], args[3], args[4], args[5], args.length > 6 ? args[6] : "");
            case "transact" -> transact(
                args[1], args[2], args[3], Integer.parseInt(args[4]), Integer.parseInt(args[5]), args[6].split(","));
            case "copy" -> copy(args[1], args[2], args[3], args[4], args[5]);
            case "attempt" -> Security.attempt(args[1], args[2]);
            case "rights" -> Security.rights(args[1], args[2]);
            case "token" -> Security.token(args[1]);
            case "time" -> time(args[1], args[2], Integer.parseInt(args[3]), Long.parseLong(args[4]));
            case "admin" -> admin(args[1], args[2], Integer.parseInt(args[3]));
            default -> throw new IllegalArgumentException("no verb " + args[0]);
        }
    }
}
