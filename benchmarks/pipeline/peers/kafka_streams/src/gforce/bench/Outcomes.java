package gforce.bench;

import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.util.LinkedHashMap;
import java.util.Map;
import org.apache.kafka.common.serialization.Serde;
import org.apache.kafka.common.serialization.Serdes;

/** For one group of a tenant, how often each expert was right and wrong under each label. */
final class Outcomes {
    static final Serde<Outcomes> SERDE = Serdes.serdeFrom(
            (topic, outcomes) -> outcomes == null ? null : outcomes.toBytes(),
            (topic, bytes) -> bytes == null ? null : fromBytes(bytes));

    private static final class Count {
        long right;
        long wrong;
    }

    /** By expert, then by label. */
    private final Map<String, Map<String, Count>> counts = new LinkedHashMap<>();

    void add(Entry entry, String label) {
        for (int expert = 0; expert < entry.experts().size(); expert++) {
            Count count = counts.computeIfAbsent(entry.experts().get(expert), name -> new LinkedHashMap<>(4))
                    .computeIfAbsent(label, name -> new Count());
            if (entry.predictions().get(expert).equals(label)) {
                count.right++;
            } else {
                count.wrong++;
            }
        }
    }

    /** The share of right predictions, with one right and one wrong added, so that a new expert weighs a half. */
    double weight(String expert) {
        long right = 1;
        long all = 2;
        for (Count count : counts.getOrDefault(expert, Map.of()).values()) {
            right += count.right;
            all += count.right + count.wrong;
        }
        return (double) right / all;
    }

    private byte[] toBytes() {
        int size = 1;
        for (Map.Entry<String, Map<String, Count>> expert : counts.entrySet()) {
            size += 3 + 3 * expert.getKey().length();
            for (String label : expert.getValue().keySet()) {
                size += 2 + 3 * label.length() + 2 * Long.BYTES;
            }
        }
        ByteBuffer buffer = ByteBuffer.allocate(size);
        buffer.put((byte) counts.size());
        for (Map.Entry<String, Map<String, Count>> expert : counts.entrySet()) {
            put(buffer, expert.getKey());
            buffer.put((byte) expert.getValue().size());
            for (Map.Entry<String, Count> label : expert.getValue().entrySet()) {
                put(buffer, label.getKey());
                buffer.putLong(label.getValue().right).putLong(label.getValue().wrong);
            }
        }
        byte[] bytes = new byte[buffer.flip().remaining()];
        buffer.get(bytes);
        return bytes;
    }

    private static Outcomes fromBytes(byte[] bytes) {
        ByteBuffer buffer = ByteBuffer.wrap(bytes);
        Outcomes outcomes = new Outcomes();
        for (int experts = buffer.get(); experts > 0; experts--) {
            Map<String, Count> labels = new LinkedHashMap<>(4);
            outcomes.counts.put(text(buffer), labels);
            for (int left = buffer.get(); left > 0; left--) {
                Count count = new Count();
                labels.put(text(buffer), count);
                count.right = buffer.getLong();
                count.wrong = buffer.getLong();
            }
        }
        return outcomes;
    }

    private static void put(ByteBuffer buffer, String text) {
        byte[] bytes = text.getBytes(StandardCharsets.UTF_8);
        buffer.putShort((short) bytes.length).put(bytes);
    }

    private static String text(ByteBuffer buffer) {
        int size = buffer.getShort();
        String text = new String(buffer.array(), buffer.position(), size, StandardCharsets.UTF_8);
        buffer.position(buffer.position() + size);
        return text;
    }
}
