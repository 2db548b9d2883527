package gforce.bench;

import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import org.apache.kafka.common.serialization.Serde;
import org.apache.kafka.common.serialization.Serdes;

/** For one group of a tenant, how often each expert was right and wrong under each label. */
final class Outcomes {
    static final Serde<Outcomes> SERDE = Serdes.serdeFrom(
            (topic, outcomes) -> outcomes == null ? null : outcomes.toBytes(),
            (topic, bytes) -> bytes == null ? null : fromBytes(bytes));

    private final List<String> labels = new ArrayList<>(4);
    private final List<String> experts = new ArrayList<>(8);
    /** Of each expert, for each label: how often it was right, how often wrong. */
    private final List<long[]> counts = new ArrayList<>(8);

    void add(Entry entry, String label) {
        int column = labels.indexOf(label);
        if (column < 0) {
            column = labels.size();
            labels.add(label);
            counts.replaceAll(row -> Arrays.copyOf(row, 2 * labels.size()));
        }
        for (int i = 0; i < entry.experts().size(); i++) {
            int row = experts.indexOf(entry.experts().get(i));
            if (row < 0) {
                row = experts.size();
                experts.add(entry.experts().get(i));
                counts.add(new long[2 * labels.size()]);
            }
            counts.get(row)[2 * column + (entry.predictions().get(i).equals(label) ? 0 : 1)]++;
        }
    }

    /** The share of right predictions, with one right and one wrong added, so that a new expert weighs a half. */
    double weight(String expert) {
        int row = experts.indexOf(expert);
        long right = 1;
        long wrong = 1;
        for (int column = 0; row >= 0 && column < labels.size(); column++) {
            right += counts.get(row)[2 * column];
            wrong += counts.get(row)[2 * column + 1];
        }
        return (double) right / (right + wrong);
    }

    private byte[] toBytes() {
        int size = 2 + 2 * Long.BYTES * labels.size() * experts.size();
        for (String name : labels) {
            size += 2 + 3 * name.length();
        }
        for (String name : experts) {
            size += 2 + 3 * name.length();
        }
        ByteBuffer buffer = ByteBuffer.allocate(size);
        buffer.put((byte) labels.size());
        labels.forEach(name -> put(buffer, name));
        buffer.put((byte) experts.size());
        for (int row = 0; row < experts.size(); row++) {
            put(buffer, experts.get(row));
            for (long count : counts.get(row)) {
                buffer.putLong(count);
            }
        }
        return Arrays.copyOf(buffer.array(), buffer.position());
    }

    private static Outcomes fromBytes(byte[] bytes) {
        ByteBuffer buffer = ByteBuffer.wrap(bytes);
        Outcomes outcomes = new Outcomes();
        for (int left = buffer.get(); left > 0; left--) {
            outcomes.labels.add(text(buffer));
        }
        for (int left = buffer.get(); left > 0; left--) {
            outcomes.experts.add(text(buffer));
            long[] row = new long[2 * outcomes.labels.size()];
            for (int i = 0; i < row.length; i++) {
                row[i] = buffer.getLong();
            }
            outcomes.counts.add(row);
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
