import java.util.Map;
import org.apache.kafka.common.errors.PolicyViolationException;
import org.apache.kafka.server.policy.CreateTopicPolicy;

/** Refuses what hosted clusters refuse: large records, or that a user decides how many copies acknowledge. */
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
        if (most == 0 && topic.configs().containsKey("min.insync.replicas")) {
            throw new PolicyViolationException("min.insync.replicas is not yours to set");
        }
    }

    @Override
    public void close() {}
}
