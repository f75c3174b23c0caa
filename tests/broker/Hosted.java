import java.util.Map;
import org.apache.kafka.common.errors.PolicyViolationException;
import org.apache.kafka.server.policy.CreateTopicPolicy;

/** Refuses topics for large records, as hosted clusters do. */
public class Hosted implements CreateTopicPolicy {
    private long most;

    @Override
    public void configure(Map<String, ?> broker) {
        most = Long.parseLong((String) broker.get("hosted.most.bytes"));
    }

    @Override
    public void validate(RequestMetadata topic) {
        String bytes = topic.configs().get("max.message.bytes");
        if (bytes != null && Long.parseLong(bytes) > most) {
            throw new PolicyViolationException("max.message.bytes exceeds " + most);
        }
    }

    @Override
    public void close() {}
}
