// Prints the records of a file (key and value, each with its length, -1 for null) with Kafka's formatters of
// __consumer_offsets, those that kafka-console-consumer --formatter names: one line each, or none.

import java.io.BufferedInputStream;
import java.io.ByteArrayOutputStream;
import java.io.DataInputStream;
import java.io.FileInputStream;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.common.MessageFormatter;

public class OffsetsFormatters {
    private static final String[] FORMATTERS = {
        "kafka.coordinator.group.GroupMetadataManager$OffsetsMessageFormatter",
        "kafka.coordinator.group.GroupMetadataManager$GroupMetadataMessageFormatter",
        "org.apache.kafka.tools.consumer.OffsetsMessageFormatter",
        "org.apache.kafka.tools.consumer.GroupMetadataMessageFormatter"
    };

    public static void main(String[] arguments) throws Exception {
        try (DataInputStream in =
                new DataInputStream(new BufferedInputStream(new FileInputStream(arguments[0])))) {
            MessageFormatter[] formatters = new MessageFormatter[FORMATTERS.length];
            for (int i = 0; i < FORMATTERS.length; i++) {
                formatters[i] = (MessageFormatter) Class.forName(FORMATTERS[i]).getDeclaredConstructor().newInstance();
            }
            PrintStream out = new PrintStream(System.out, true, StandardCharsets.UTF_8);
            for (long offset = 0; in.available() > 0; offset++) {
                ConsumerRecord<byte[], byte[]> record =
                        new ConsumerRecord<>("__consumer_offsets", 0, offset, field(in), field(in));
                for (MessageFormatter formatter : formatters) {
                    ByteArrayOutputStream printed = new ByteArrayOutputStream();
                    formatter.writeTo(record, new PrintStream(printed, true));
                    if (printed.size() > 0) {
                        out.println(printed.toString(StandardCharsets.UTF_8).strip());
                    }
                }
            }
        }
    }

    private static byte[] field(DataInputStream in) throws Exception {
        int size = in.readInt();
        if (size < 0) {
            return null;
        }
        byte[] bytes = new byte[size];
        in.readFully(bytes);
        return bytes;
    }
}
