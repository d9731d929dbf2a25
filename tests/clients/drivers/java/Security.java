// How the Java client connects with a login, and the administration of rights: used by Driver.java.

import java.io.FileReader;
import java.time.Duration;
import java.util.Base64;
import java.util.Collection;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.concurrent.ExecutionException;
import java.util.stream.Collectors;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.DescribeClusterOptions;
import org.apache.kafka.clients.admin.DescribeTopicsOptions;
import org.apache.kafka.clients.admin.ScramCredentialInfo;
import org.apache.kafka.clients.admin.ScramMechanism;
import org.apache.kafka.clients.admin.UserScramCredentialUpsertion;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.acl.AccessControlEntry;
import org.apache.kafka.common.acl.AccessControlEntryFilter;
import org.apache.kafka.common.acl.AclBinding;
import org.apache.kafka.common.acl.AclBindingFilter;
import org.apache.kafka.common.acl.AclOperation;
import org.apache.kafka.common.acl.AclPermissionType;
import org.apache.kafka.common.quota.ClientQuotaAlteration;
import org.apache.kafka.common.quota.ClientQuotaEntity;
import org.apache.kafka.common.quota.ClientQuotaFilter;
import org.apache.kafka.common.quota.ClientQuotaFilterComponent;
import org.apache.kafka.common.resource.PatternType;
import org.apache.kafka.common.resource.ResourcePattern;
import org.apache.kafka.common.resource.ResourcePatternFilter;
import org.apache.kafka.common.resource.ResourceType;
import org.apache.kafka.common.security.token.delegation.DelegationToken;
import org.apache.kafka.common.serialization.StringSerializer;

final class Security {
    private static final String HANDLER = "sasl.login.callback.handler.class";
    private static final String TOKEN = "sasl.oauthbearer.token.endpoint.url";

    // Returns the properties of the login that MATRIX_LOGIN names.
    static Properties login() {
        Properties found = new Properties();
        String name = System.getenv("MATRIX_LOGIN");
        if (name == null) {
            return found;
        }
        try (FileReader reader = new FileReader(name + ".properties")) {
            found.load(reader);
        } catch (java.io.IOException error) {
            throw new IllegalStateException(error);
        }
        if (found.containsKey(HANDLER)) {
            System.setProperty("org.apache.kafka.sasl.oauthbearer.allowed.urls", found.getProperty(TOKEN));
            try {
                Class.forName(found.getProperty(HANDLER));
            } catch (ClassNotFoundException isOfKafka4) {
                found.put(HANDLER, found.getProperty(HANDLER).replace(".secured", ""));
            }
        }
        return found;
    }

    private static Properties settings(String bootstrap) {
        Properties settings = login();
        settings.put("bootstrap.servers", bootstrap);
        return settings;
    }

    static void attempt(String bootstrap, String topic) throws Exception {
        Properties settings = settings(bootstrap);
        settings.put("max.block.ms", "20000");
        KafkaProducer<String, String> producer =
            new KafkaProducer<>(settings, new StringSerializer(), new StringSerializer());
        try {
            producer.send(new ProducerRecord<>(topic, "0")).get();
            Driver.say("{\"acked\": 0}");
        } catch (ExecutionException failed) {
            Throwable cause = failed.getCause();
            Driver.say("{\"error\": " + quoted(cause.getClass().getSimpleName()) + ", \"code\": null, \"text\": "
                + quoted(cause.getMessage()) + "}");
        }
        producer.close(Duration.ZERO);
    }

    private static String quoted(String text) {
        return "\"" + text.replace("\\", "\\\\").replace("\"", "\\\"").replaceAll("\\s+", " ") + "\"";
    }

    private static String quotedAll(Collection<?> values) {
        return values.stream().map(one -> quoted(one.toString())).sorted().collect(Collectors.joining(", ", "[", "]"));
    }

    static void rights(String bootstrap, String topic) throws Exception {
        try (Admin admin = Admin.create(settings(bootstrap))) {
            acls(admin, topic);
            users(admin);
            quotas(admin);
            operations(admin, topic);
        }
    }

    private static void acls(Admin admin, String topic) throws Exception {
        AclBinding binding = new AclBinding(new ResourcePattern(ResourceType.TOPIC, topic, PatternType.LITERAL),
            new AccessControlEntry("User:bob", "*", AclOperation.READ, AclPermissionType.ALLOW));
        AclBindingFilter filter = new AclBindingFilter(
            new ResourcePatternFilter(ResourceType.TOPIC, topic, PatternType.LITERAL), AccessControlEntryFilter.ANY);
        admin.createAcls(List.of(binding)).all().get();
        Collection<AclBinding> found = admin.describeAcls(filter).values().get();
        while (found.isEmpty()) { // the broker that was asked does not know it yet
            Thread.sleep(20);
            found = admin.describeAcls(filter).values().get();
        }
        Collection<AclBinding> deleted = admin.deleteAcls(List.of(filter)).all().get();
        Driver.say("{\"acls\": " + quotedAll(principals(found)) + ", \"deleted\": " + quotedAll(principals(deleted)) + "}");
    }

    private static List<String> principals(Collection<AclBinding> bindings) {
        return bindings.stream().map(one -> one.entry().principal()).collect(Collectors.toList());
    }

    private static void users(Admin admin) throws Exception {
        ScramCredentialInfo info = new ScramCredentialInfo(ScramMechanism.SCRAM_SHA_512, 4096);
        admin.alterUserScramCredentials(List.of(new UserScramCredentialUpsertion("erin", info, "erin-secret"))).all().get();
        List<ScramCredentialInfo> found =
            admin.describeUserScramCredentials(List.of("erin")).description("erin").get().credentialInfos();
        Driver.say("{\"scram\": " + quotedAll(
            found.stream().map(one -> one.mechanism().mechanismName() + " " + one.iterations()).toList()) + "}");
    }

    private static void quotas(Admin admin) throws Exception {
        ClientQuotaEntity entity = new ClientQuotaEntity(Map.of(ClientQuotaEntity.USER, "erin"));
        admin.alterClientQuotas(List.of(new ClientQuotaAlteration(
            entity, List.of(new ClientQuotaAlteration.Op("producer_byte_rate", 1e6))))).all().get();
        ClientQuotaFilter filter = ClientQuotaFilter.containsOnly(
            List.of(ClientQuotaFilterComponent.ofEntity(ClientQuotaEntity.USER, "erin")));
        Map<String, Double> found = admin.describeClientQuotas(filter).entities().get().get(entity);
        Driver.say("{\"quota\": " + found.get("producer_byte_rate") + "}");
    }

    private static void operations(Admin admin, String topic) throws Exception {
        Driver.say("{\"operations\": " + quotedAll(admin.describeTopics(
            List.of(topic), new DescribeTopicsOptions().includeAuthorizedOperations(true))
            .allTopicNames().get().get(topic).authorizedOperations()) + ", \"cluster\": " + quotedAll(
            admin.describeCluster(new DescribeClusterOptions().includeAuthorizedOperations(true))
            .authorizedOperations().get()) + "}");
    }

    static void token(String bootstrap) throws Exception {
        try (Admin admin = Admin.create(settings(bootstrap))) {
            DelegationToken made = admin.createDelegationToken().delegationToken().get();
            Driver.say("{\"id\": " + quoted(made.tokenInfo().tokenId()) + ", \"hmac\": "
                + quoted(Base64.getEncoder().encodeToString(made.hmac())) + "}");
        }
    }
}
