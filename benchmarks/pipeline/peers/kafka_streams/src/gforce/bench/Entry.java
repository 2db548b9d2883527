package gforce.bench;

import java.io.ByteArrayInputStream;
import java.io.ByteArrayOutputStream;
import java.io.DataInputStream;
import java.io.DataOutputStream;
import java.io.IOException;
import java.io.UncheckedIOException;
import java.util.ArrayList;
import java.util.List;
import org.apache.kafka.common.serialization.Serde;
import org.apache.kafka.common.serialization.Serdes;

/**
 * What the store holds of one decision: a decided request that waits for its label, or a label that came first.
 *
 * @param decided index of the expert whose advice was taken; -1 in a label that came first
 * @param weight of that expert, so that a request that comes twice gets the same decision
 * @param label null in a decided request
 */
record Entry(int decided, double weight, String group, List<String> experts, List<String> predictions, String label) {
    static final Serde<Entry> SERDE = Serdes.serdeFrom(
            (topic, entry) -> entry == null ? null : entry.toBytes(),
            (topic, bytes) -> bytes == null ? null : fromBytes(bytes));

    static Entry pending(Event request, int decided, double weight) {
        return new Entry(decided, weight, request.group(), request.experts(), request.predictions(), null);
    }

    static Entry parked(String label) {
        return new Entry(-1, 0.0, null, List.of(), List.of(), label);
    }

    private byte[] toBytes() {
        ByteArrayOutputStream bytes = new ByteArrayOutputStream(128);
        DataOutputStream out = new DataOutputStream(bytes);
        try {
            out.writeByte(decided);
            if (decided < 0) {
                out.writeUTF(label);
                return bytes.toByteArray();
            }
            out.writeDouble(weight);
            out.writeUTF(group);
            out.writeByte(experts.size());
            for (int expert = 0; expert < experts.size(); expert++) {
                out.writeUTF(experts.get(expert));
                out.writeUTF(predictions.get(expert));
            }
        } catch (IOException error) {
            throw new UncheckedIOException(error);
        }
        return bytes.toByteArray();
    }

    private static Entry fromBytes(byte[] bytes) {
        DataInputStream in = new DataInputStream(new ByteArrayInputStream(bytes));
        try {
            int decided = in.readByte();
            if (decided < 0) {
                return parked(in.readUTF());
            }
            double weight = in.readDouble();
            String group = in.readUTF();
            int count = in.readByte();
            List<String> experts = new ArrayList<>(count);
            List<String> predictions = new ArrayList<>(count);
            for (int expert = 0; expert < count; expert++) {
                experts.add(in.readUTF());
                predictions.add(in.readUTF());
            }
            return new Entry(decided, weight, group, experts, predictions, null);
        } catch (IOException error) {
            throw new UncheckedIOException(error);
        }
    }
}
