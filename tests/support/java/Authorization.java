import java.lang.reflect.Field;
import java.net.InetAddress;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.Collections;
import java.util.HashMap;
import java.util.HashSet;
import java.util.List;
import java.util.Map;
import java.util.Set;
import kafka.security.authorizer.AclAuthorizer;
import org.apache.kafka.common.acl.AccessControlEntry;
import org.apache.kafka.common.acl.AclOperation;
import org.apache.kafka.common.acl.AclPermissionType;
import org.apache.kafka.common.network.ClientInformation;
import org.apache.kafka.common.network.ListenerName;
import org.apache.kafka.common.protocol.ApiKeys;
import org.apache.kafka.common.requests.RequestContext;
import org.apache.kafka.common.requests.RequestHeader;
import org.apache.kafka.common.resource.PatternType;
import org.apache.kafka.common.resource.ResourcePattern;
import org.apache.kafka.common.resource.ResourceType;
import org.apache.kafka.common.security.auth.KafkaPrincipal;
import org.apache.kafka.common.security.auth.SecurityProtocol;
import org.apache.kafka.common.utils.SecurityUtils;
import org.apache.kafka.security.authorizer.AclEntry;
import org.apache.kafka.server.authorizer.Action;
import org.apache.kafka.server.authorizer.AuthorizationResult;
import scala.jdk.javaapi.CollectionConverters;

/**
 * Answers questions to Kafka's AclAuthorizer. The file has one line for each step, with fields between tabs:
 * "new" super users, allow.everyone.if.no.acl.found; "acl" type, name, pattern, principal, host, operation, permission;
 * "one" principal, host, operation, type, name; "any" principal, host, operation, type. One line for each question is
 * printed: ALLOWED or DENIED.
 */
public class Authorization {
    private static AclAuthorizer authorizer;
    private static final Map<ResourcePattern, Set<AclEntry>> ACLS = new HashMap<>();

    public static void main(String[] arguments) throws Exception {
        StringBuilder printed = new StringBuilder();
        for (String line : Files.readAllLines(Path.of(arguments[0]))) {
            String[] fields = line.split("\t", -1);
            switch (fields[0]) {
                case "new" -> start(fields[1], Boolean.parseBoolean(fields[2]));
                case "acl" -> add(fields);
                case "one" -> printed.append(one(fields)).append('\n');
                case "any" -> printed.append(any(fields)).append('\n');
                default -> throw new IllegalArgumentException(line);
            }
        }
        System.out.print(printed);
    }

    private static void start(String superUsers, boolean allowIfNoAcl) throws Exception {
        authorizer = new AclAuthorizer();
        ACLS.clear();
        Set<KafkaPrincipal> users = new HashSet<>();
        for (String user : superUsers.split(";"))
            if (!user.isEmpty()) users.add(SecurityUtils.parseKafkaPrincipal(user));
        set("superUsers", immutable(users));
        set("shouldAllowEveryoneIfNoAclIsFound", allowIfNoAcl);
    }

    private static void set(String name, Object value) throws Exception {
        Field field = AclAuthorizer.class.getDeclaredField(name);
        field.setAccessible(true);
        field.set(authorizer, value);
    }

    private static <T> scala.collection.immutable.Set<T> immutable(Set<T> items) {
        return CollectionConverters.asScala(items).toSet();
    }

    private static void add(String[] f) {
        ResourcePattern pattern =
            new ResourcePattern(ResourceType.valueOf(f[1]), f[2], PatternType.valueOf(f[3]));
        AclEntry entry = new AclEntry(new AccessControlEntry(
            f[4], f[5], AclOperation.valueOf(f[6]), AclPermissionType.valueOf(f[7])));
        Set<AclEntry> entries = ACLS.computeIfAbsent(pattern, key -> new HashSet<>());
        entries.add(entry);
        authorizer.updateCache(pattern, new AclAuthorizer.VersionedAcls(immutable(entries), 1));
    }

    private static RequestContext context(String principal, String host) throws Exception {
        return new RequestContext(
            new RequestHeader(ApiKeys.PRODUCE, (short) 1, "client", 1), "1",
            InetAddress.getByName(host), SecurityUtils.parseKafkaPrincipal(principal),
            ListenerName.normalised("listener"), SecurityProtocol.PLAINTEXT,
            ClientInformation.EMPTY, false);
    }

    private static AuthorizationResult one(String[] f) throws Exception {
        ResourcePattern resource =
            new ResourcePattern(ResourceType.valueOf(f[4]), f[5], PatternType.LITERAL);
        List<Action> actions = Collections.singletonList(
            new Action(AclOperation.valueOf(f[3]), resource, 1, true, true));
        return authorizer.authorize(context(f[1], f[2]), actions).get(0);
    }

    private static AuthorizationResult any(String[] f) throws Exception {
        return authorizer.authorizeByResourceType(
            context(f[1], f[2]), AclOperation.valueOf(f[3]), ResourceType.valueOf(f[4]));
    }
}
