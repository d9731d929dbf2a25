import com.sun.tools.attach.VirtualMachine;
import java.util.Set;
import java.util.TreeSet;
import javax.management.MBeanAttributeInfo;
import javax.management.MBeanServerConnection;
import javax.management.ObjectName;
import javax.management.remote.JMXConnectorFactory;
import javax.management.remote.JMXServiceURL;

/**
 * Prints the beans of a running Java process, one a line: domain:type=TYPE,name=NAME. An attribute of a bean without a
 * name counts as its name.
 */
public class Beans {
    public static void main(String[] arguments) throws Exception {
        VirtualMachine process = VirtualMachine.attach(arguments[0]);
        String url = process.startLocalManagementAgent();
        Set<String> found = new TreeSet<>();
        try (var connector = JMXConnectorFactory.connect(new JMXServiceURL(url))) {
            MBeanServerConnection server = connector.getMBeanServerConnection();
            for (ObjectName bean : server.queryNames(new ObjectName("kafka.*:*"), null)) {
                String begin = bean.getDomain() + ":type=" + bean.getKeyProperty("type") + ",name=";
                if (bean.getKeyProperty("name") != null) {
                    found.add(begin + bean.getKeyProperty("name"));
                } else {
                    for (MBeanAttributeInfo attribute : server.getMBeanInfo(bean).getAttributes()) {
                        found.add(begin + attribute.getName());
                    }
                }
            }
        }
        found.forEach(System.out::println);
    }
}
