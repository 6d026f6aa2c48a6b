package python

import (
	"flag"
	"fmt"
	"net"
	"os"
	"os/exec"
	"strings"
	"testing"

	"github.com/leasekeeper/leasekeeper/conformance/programs/cluster"
	"github.com/leasekeeper/leasekeeper/conformance/programs/script"
	"github.com/leasekeeper/leasekeeper/conformance/programs/steps"
)

const (
	// interpreter is Debian's: only that one finds Debian's packages.
	interpreter = "/usr/bin/python3"
	packages    = "/usr/lib/python3/dist-packages/"
)

var leaderKills = flag.Int("leaderkills", 2, "how often the cluster's leader is killed while a script works")

// libraries are the packages, by the names that Debian and LEASEKEEPER_TEST_REQUIRE have for them.
var libraries = map[string]string{"python3-etcd3": "etcd3", "python3-etcd3gw": "etcd3gw"}

func TestMain(m *testing.M) { os.Exit(cluster.Main(m)) }

// Each answer that a library gets from Leasekeeper is the one that it gets from etcd.
func TestPythonClientsGetEtcdsAnswers(t *testing.T) {
	for need, library := range libraries {
		t.Run(library, func(t *testing.T) {
			t.Parallel()
			cluster.Need(t, need, interpreter, packages+library+"/client.py")
			script.Compare(t, func(t *testing.T, c *cluster.Cluster) []string {
				return script.Run(t, "testdata", interpreter, "-I", library+"_features.py", c.Leader().Endpoint(), t.TempDir())
			})
		})
	}
}

// Programs with these libraries lose nothing while the leader is killed, several times, and each member is replaced.
func TestPythonClientsOutliveTheMembers(t *testing.T) {
	for need, library := range libraries {
		for _, kind := range cluster.Kinds {
			t.Run(library+"/"+string(kind), func(t *testing.T) {
				t.Parallel()
				cluster.Need(t, need, interpreter, packages+library+"/client.py")
				c := cluster.Start(t, kind, 3)
				s := script.StartFaults(t, "testdata", interpreter, "faults.py", library, strings.Join(c.Endpoints(), ","))
				s.Outlive(c, *leaderKills)
			})
		}
	}
}

// The program of docs/how-to/patroni.md goes on with the next endpoint when the first one does not answer. The test adds a line
// that reads what the program has written.
func TestPythonProgramOfThePageGoesOnWithAnotherMember(t *testing.T) {
	t.Parallel()
	cluster.Need(t, "python3-etcd3", interpreter, packages+"etcd3/client.py")
	c := cluster.Start(t, cluster.Leasekeeper, 3)
	program := steps.Read(t, "../../../docs/how-to/patroni.md", "Programs in Python").Block("import etcd3")
	for i, m := range c.Members() {
		host, port, err := net.SplitHostPort(m.Endpoint())
		if err != nil {
			t.Fatal(err)
		}
		shown := fmt.Sprintf(`("10.0.0.%d", 2379)`, i+1)
		if !strings.Contains(program, shown) {
			t.Fatalf("the program has no %s", shown)
		}
		program = strings.ReplaceAll(program, shown, fmt.Sprintf("(%q, %s)", host, port))
	}
	c.Kill(c.Members()[0])
	c.Leader()
	program += `print(repeat(lambda client: client.get("greeting"))[0].decode())` + "\n"
	out, err := exec.CommandContext(t.Context(), interpreter, "-I", "-c", program).CombinedOutput()
	if err != nil || string(out) != "hello\n" {
		t.Errorf("the program prints %s: %v", out, err)
	}
}
