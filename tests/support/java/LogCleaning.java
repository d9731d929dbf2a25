// Cleans logs with Kafka's Cleaner. Each argument is a file of lines: directory, first dirty offset, uncleanable
// offset, time (ms), delete.retention.ms, segment.bytes, memory of the map. Prints the end offset of each cleaning.

import java.io.File;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.HashMap;
import java.util.Map;
import java.util.concurrent.ConcurrentHashMap;
import kafka.log.Cleaner;
import kafka.log.LogToClean;
import kafka.log.UnifiedLog;
import kafka.server.BrokerTopicStats;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.utils.Time;
import org.apache.kafka.server.util.KafkaScheduler;
import org.apache.kafka.storage.internals.log.LogConfig;
import org.apache.kafka.storage.internals.log.LogDirFailureChannel;
import org.apache.kafka.storage.internals.log.LogOffsetsListener;
import org.apache.kafka.storage.internals.log.ProducerStateManagerConfig;
import org.apache.kafka.storage.internals.log.SkimpyOffsetMap;
import org.apache.kafka.storage.internals.utils.Throttler;
import scala.Option;
import scala.Tuple2;
import scala.runtime.BoxedUnit;

public class LogCleaning {
    private static final int IO_BUFFER = 256 * 1024;

    public static void main(String[] arguments) throws Exception {
        for (String file : arguments) {
            for (String line : Files.readAllLines(Path.of(file))) {
                System.out.println(clean(line.split(" ")));
            }
        }
    }

    private static Object clean(String[] words) throws Exception {
        UnifiedLog log = open(new File(words[0]), words[4], words[5]);
        long now = Long.parseLong(words[3]);
        Throttler throttler =
                new Throttler(Double.MAX_VALUE, Long.MAX_VALUE, "cleaner-io", "bytes", Time.SYSTEM);
        Cleaner cleaner = new Cleaner(
                0, new SkimpyOffsetMap(Integer.parseInt(words[6])), IO_BUFFER, 32 << 20, 0.9, throttler,
                Time.SYSTEM, partition -> BoxedUnit.UNIT);
        LogToClean cleanable = new LogToClean(
                log.topicPartition(), log, Long.parseLong(words[1]), Long.parseLong(words[2]), false);
        long began = System.nanoTime();
        Tuple2<Object, ?> result = cleaner.doClean(cleanable, now);
        System.err.println("nanoseconds " + (System.nanoTime() - began));
        log.close();
        return result._1();
    }

    private static UnifiedLog open(File directory, String deleteRetention, String segmentBytes) {
        Map<String, String> settings = new HashMap<>();
        settings.put("cleanup.policy", "compact");
        settings.put("delete.retention.ms", deleteRetention);
        settings.put("segment.bytes", segmentBytes);
        KafkaScheduler scheduler = new KafkaScheduler(1);
        return UnifiedLog.apply(
                directory, new LogConfig(settings), 0, 0, scheduler, new BrokerTopicStats(false), Time.SYSTEM,
                Integer.MAX_VALUE, new ProducerStateManagerConfig(Integer.MAX_VALUE, false), 600000,
                new LogDirFailureChannel(1), false, Option.empty(), true, new ConcurrentHashMap<>(), false,
                LogOffsetsListener.NO_OP_OFFSETS_LISTENER);
    }
}
