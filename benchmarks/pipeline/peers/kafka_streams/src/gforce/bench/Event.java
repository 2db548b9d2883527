package gforce.bench;

import com.fasterxml.jackson.core.JsonFactory;
import com.fasterxml.jackson.core.JsonGenerator;
import com.fasterxml.jackson.core.JsonParser;
import com.fasterxml.jackson.core.JsonToken;
import java.io.ByteArrayOutputStream;
import java.io.IOException;
import java.io.UncheckedIOException;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.List;

/**
 * A request or a label, read from JSON by Jackson's streaming parser; no tree and no reflection.
 *
 * @param context what the request wants back in its decision, as JSON, or null
 * @param label null in a request
 */
record Event(
        String tenant,
        String decisionId,
        String group,
        List<String> experts,
        List<String> predictions,
        String context,
        String label) {
    private static final JsonFactory JSON = new JsonFactory();

    static Event parse(byte[] value) {
        String tenant = null;
        String decisionId = null;
        String group = null;
        String context = null;
        String label = null;
        List<String> experts = new ArrayList<>(8);
        List<String> predictions = new ArrayList<>(8);
        try (JsonParser parser = JSON.createParser(value)) {
            parser.nextToken();
            for (String name = parser.nextFieldName(); name != null; name = parser.nextFieldName()) {
                switch (name) {
                    case "tenant" -> tenant = parser.nextTextValue();
                    case "decision_id" -> decisionId = parser.nextTextValue();
                    case "group" -> group = parser.nextTextValue();
                    case "label" -> label = parser.nextTextValue();
                    case "context" -> context = raw(parser, value);
                    case "predictions" -> {
                        parser.nextToken();
                        for (String expert = parser.nextFieldName(); expert != null; expert = parser.nextFieldName()) {
                            experts.add(expert);
                            predictions.add(parser.nextTextValue());
                        }
                    }
                    default -> {
                        parser.nextToken();
                        parser.skipChildren();
                    }
                }
            }
        } catch (IOException error) {
            throw new UncheckedIOException(error);
        }
        return new Event(tenant, decisionId, group, experts, predictions, context, label);
    }

    private static String raw(JsonParser parser, byte[] value) throws IOException {
        JsonToken token = parser.nextToken();
        int start = (int) parser.currentTokenLocation().getByteOffset();
        parser.skipChildren();
        if (token == JsonToken.VALUE_STRING) {
            parser.finishToken();
        }
        int end = (int) parser.currentLocation().getByteOffset();
        return new String(value, start, end - start, StandardCharsets.UTF_8);
    }

    /** The key of its entry in the store; what differs comes first, which a sorted store compares faster. */
    String key() {
        return decisionId + '/' + tenant;
    }

    /** The decision that takes the advice of one expert. */
    byte[] decision(int expert, double weight) {
        ByteArrayOutputStream bytes = new ByteArrayOutputStream(256);
        try (JsonGenerator generator = JSON.createGenerator(bytes)) {
            generator.writeStartObject();
            generator.writeStringField("tenant", tenant);
            generator.writeStringField("decision_id", decisionId);
            generator.writeStringField("group", group);
            generator.writeStringField("decision", predictions.get(expert));
            generator.writeStringField("expert", experts.get(expert));
            generator.writeNumberField("weight", weight);
            if (context != null) {
                generator.writeFieldName("context");
                generator.writeRawValue(context);
            }
            generator.writeEndObject();
        } catch (IOException error) {
            throw new UncheckedIOException(error);
        }
        return bytes.toByteArray();
    }
}
