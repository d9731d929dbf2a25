// Prints for each batch of a file: its name, the error of Kafka's LogValidator, whether Kafka's consumer reads it, and
// the index and message of each bad record. The file has the name, the rules of the topic and the bytes of each batch.

import java.io.BufferedInputStream;
import java.io.DataInputStream;
import java.io.FileInputStream;
import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.List;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.compress.Compression;
import org.apache.kafka.common.protocol.Errors;
import org.apache.kafka.common.record.CompressionType;
import org.apache.kafka.common.record.MemoryRecords;
import org.apache.kafka.common.record.RecordBatch;
import org.apache.kafka.common.record.TimestampType;
import org.apache.kafka.common.utils.BufferSupplier;
import org.apache.kafka.common.utils.PrimitiveRef;
import org.apache.kafka.common.utils.Time;
import org.apache.kafka.server.common.MetadataVersion;
import org.apache.kafka.storage.internals.log.AppendOrigin;
import org.apache.kafka.storage.internals.log.LogValidator;
import org.apache.kafka.storage.internals.log.RecordValidationException;

public class LogValidation {
    private static final int CODEC_MASK = 7;
    private static final int ATTRIBUTES_LOW = 22;

    public static void main(String[] arguments) throws Exception {
        try (DataInputStream in =
                new DataInputStream(new BufferedInputStream(new FileInputStream(arguments[0])))) {
            while (in.available() > 0) {
                String name = new String(field(in), StandardCharsets.UTF_8);
                String rules = new String(field(in), StandardCharsets.UTF_8);
                byte[] batch = field(in);
                List<String> bad = new ArrayList<>();
                Errors error = validate(batch.clone(), rules, bad);
                System.out.println(
                        name + "\t" + error + "\t" + read(batch) + "\t" + String.join("|", bad));
            }
        }
    }

    private static byte[] field(DataInputStream in) throws Exception {
        byte[] bytes = new byte[in.readInt()];
        in.readFully(bytes);
        return bytes;
    }

    private static Errors validate(byte[] batch, String rules, List<String> bad) {
        TimestampType time = rules.equals("append") ? TimestampType.LOG_APPEND_TIME : TimestampType.CREATE_TIME;
        long distance = rules.equals("limits") ? 3_600_000 : Long.MAX_VALUE;
        CompressionType codec = CompressionType.forId(batch[ATTRIBUTES_LOW] & CODEC_MASK);
        LogValidator validator = new LogValidator(
                MemoryRecords.readableRecords(ByteBuffer.wrap(batch)),
                new TopicPartition("t", 0), Time.SYSTEM, codec, Compression.of(codec).build(),
                rules.equals("compact"), RecordBatch.MAGIC_VALUE_V2, time, distance, distance,
                1, AppendOrigin.CLIENT, MetadataVersion.latestTesting());
        try {
            validator.validateMessagesAndAssignOffsets(
                    PrimitiveRef.ofLong(0), new NoMetrics(), BufferSupplier.create());
            return Errors.NONE;
        } catch (RecordValidationException error) {
            bad.add(error.invalidException().getMessage());
            error.recordErrors().forEach(record -> bad.add(record.batchIndex + " " + record.message));
            return Errors.forException(error.invalidException());
        } catch (Throwable error) {
            return Errors.forException(error);
        }
    }

    private static String read(byte[] batch) {
        try {
            for (RecordBatch each : MemoryRecords.readableRecords(ByteBuffer.wrap(batch)).batches()) {
                each.streamingIterator(BufferSupplier.create()).forEachRemaining(record -> { });
            }
            return "read";
        } catch (Throwable error) {
            return "not read";
        }
    }

    private static class NoMetrics implements LogValidator.MetricsRecorder {
        public void recordInvalidMagic() { }

        public void recordInvalidOffset() { }

        public void recordInvalidSequence() { }

        public void recordInvalidChecksums() { }

        public void recordNoKeyCompactedTopic() { }
    }
}
