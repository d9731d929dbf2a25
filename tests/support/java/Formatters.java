// Prints the records of a file (key and value, each with its length, -1 for null) with Kafka's formatters, those that
// kafka-console-consumer --formatter names: one line each, or none. Arguments: the file, the topic, and the formatters.

import java.io.BufferedInputStream;
import java.io.ByteArrayOutputStream;
import java.io.DataInputStream;
import java.io.FileInputStream;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.common.MessageFormatter;

public class Formatters {
    public static void main(String[] arguments) throws Exception {
        try (DataInputStream in =
                new DataInputStream(new BufferedInputStream(new FileInputStream(arguments[0])))) {
            MessageFormatter[] formatters = new MessageFormatter[arguments.length - 2];
            for (int i = 0; i < formatters.length; i++) {
                formatters[i] = (MessageFormatter) Class.forName(arguments[i + 2]).getDeclaredConstructor().newInstance();
            }
            PrintStream out = new PrintStream(System.out, true, StandardCharsets.UTF_8);
            for (long offset = 0; in.available() > 0; offset++) {
                ConsumerRecord<byte[], byte[]> record =
                        new ConsumerRecord<>(arguments[1], 0, offset, field(in), field(in));
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
