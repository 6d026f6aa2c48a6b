package settings

import (
	"cmp"
	"errors"
	"slices"
	"strings"

	"github.com/spf13/pflag"

	"github.com/leasekeeper/leasekeeper/cmd/leasekeeper/internal/command"
)

// Reasons for flags of etcd that have no counterpart.
const (
	alwaysSo     = "omit it: this server always does so"
	neverSo      = "omit it: this server has nothing of the kind"
	ownStorage   = "omit it: it tunes etcd's own storage"
	hashesByHand = "omit it: compare the members with etcdctl endpoint hashkv"
	keepsTime    = "omit it: the server always keeps the remaining time of leases when the leader changes"
	peerNames    = "omit it: the certificate of a member must name its host in --initial-cluster"
)

// etcdFlags are the flags of etcd that this server does not have by their name, with what to do instead. Operators find
// them in their files when they move from etcd.
var etcdFlags = map[string]string{
	"listen-client-urls":                   "write --listen host:port; with --cert it speaks TLS",
	"advertise-client-urls":                "write --advertise",
	"listen-client-http-urls":              "write --http host:port; --listen serves HTTP too",
	"listen-metrics-urls":                  "write --http host:port; --listen serves /metrics too",
	"listen-peer-urls":                     "write --peer-listen host:port",
	"initial-advertise-peer-urls":          "write --peer-advertise host:port, or only --initial-cluster",
	"quota-backend-bytes":                  "write --quota-bytes",
	"max-concurrent-streams":               "write --max-streams",
	"config-file":                          "write --config; its keys are the flags of this server",
	"cert-file":                            "write --cert",
	"key-file":                             "write --key",
	"trusted-ca-file":                      "write --client-ca",
	"client-cert-auth":                     "write --client-ca: with it, every client needs a certificate",
	"client-cert-file":                     neverSo,
	"client-key-file":                      neverSo,
	"client-crl-file":                      "write --client-crl",
	"client-cert-allowed-hostname":         neverSo,
	"auto-tls":                             "write --cert and --key: this server makes no certificates of its own",
	"peer-cert-file":                       "write --peer-cert",
	"peer-key-file":                        "write --peer-key",
	"peer-trusted-ca-file":                 "write --peer-ca",
	"peer-client-cert-auth":                "write --peer-ca: with it, every member needs a certificate",
	"peer-client-cert-file":                "write --peer-cert: members use one certificate for both directions",
	"peer-client-key-file":                 "write --peer-key: members use one certificate for both directions",
	"peer-auto-tls":                        "write --peer-cert, --peer-key and --peer-ca: this server makes no certificates of its own",
	"peer-crl-file":                        "write --peer-crl",
	"peer-cert-allowed-cn":                 peerNames,
	"peer-cert-allowed-hostname":           peerNames,
	"peer-skip-client-san-verification":    peerNames,
	"self-signed-cert-validity":            neverSo,
	"cipher-suites":                        "omit it: the suites are those that Go regards as secure",
	"tls-min-version":                      "omit it: the server speaks TLS 1.2 and 1.3",
	"tls-max-version":                      "omit it: the server speaks TLS 1.2 and 1.3",
	"heartbeat-interval":                   "omit it: it follows from --election-timeout",
	"pre-vote":                             alwaysSo,
	"strict-reconfig-check":                alwaysSo,
	"initial-election-tick-advance":        neverSo,
	"auto-compaction-mode":                 "omit it: --auto-compaction-retention is a duration, as in the mode periodic",
	"snapshot-count":                       ownStorage,
	"snapshot-catchup-entries":             ownStorage,
	"max-snapshots":                        ownStorage,
	"max-wals":                             ownStorage,
	"wal-dir":                              "omit it: the log is in --data-dir",
	"backend-batch-interval":               ownStorage,
	"backend-batch-limit":                  ownStorage,
	"backend-bbolt-freelist-type":          ownStorage,
	"bootstrap-defrag-threshold-megabytes": ownStorage,
	"compaction-batch-limit":               ownStorage,
	"compaction-sleep-interval":            ownStorage,
	"memory-mlock":                         ownStorage,
	"unsafe-no-fsync":                      "omit it: the server always waits for the disk before it acknowledges",
	"max-learners":                         neverSo,
	"grpc-keepalive-min-time":              "omit it: clients may ping every 5 s, as etcd has it by default",
	"grpc-keepalive-interval":              "omit it: the server pings every 2 h, as etcd does by default",
	"grpc-keepalive-timeout":               "omit it: the server waits 20 s for the answer to a ping, as etcd does by default",
	"socket-reuse-port":                    neverSo,
	"socket-reuse-address":                 neverSo,
	"raft-read-timeout":                    neverSo,
	"raft-write-timeout":                   neverSo,
	"cors":                                 "omit it: requests from pages of other sites are refused",
	"host-whitelist":                       "write --advertise: the server answers to the names in it",
	"enable-grpc-gateway":                  "omit it: the gateway is always on",
	"logger":                               "omit it: --log-level and --log-format say how to log",
	"log-outputs":                          "omit it: the log goes to standard error",
	"enable-log-rotation":                  "omit it: the log goes to standard error, whose reader rotates it",
	"log-rotation-config-json":             "omit it: the log goes to standard error, whose reader rotates it",
	"metrics":                              "omit it: /metrics has all metrics",
	"enable-pprof":                         neverSo,
	"enable-distributed-tracing":           "omit it: the log has the trace ids of requests that carry a traceparent",
	"distributed-tracing-address":          neverSo,
	"distributed-tracing-service-name":     neverSo,
	"distributed-tracing-instance-id":      neverSo,
	"distributed-tracing-sampling-rate":    neverSo,
	"warning-apply-duration":               neverSo,
	"warning-unary-request-duration":       neverSo,
	"corrupt-check-time":                   hashesByHand,
	"compact-hash-check-time":              hashesByHand,
	"downgrade-check-time":                 neverSo,
	"force-new-cluster":                    "omit it: leasekeeper recover makes a new cluster of a survivor",
	"discovery":                            "write --initial-cluster or --discovery-srv",
	"v2-deprecation":                       neverSo,
	"initial-cluster-token":                "omit it: the cluster draws its own id when it is founded",

	// Flags that etcd had until 3.4 to 3.6.
	"debug":                           "write --log-level debug",
	"log-package-levels":              "omit it: --log-level says what to log",
	"enable-v2":                       "omit it: the server has version 3 of etcd's API only",
	"proxy":                           "omit it: every member passes on what only the leader can answer",
	"enable-lease-checkpoint":         keepsTime,
	"enable-lease-checkpoint-persist": keepsTime,
	"compact-hash-check-enabled":      hashesByHand,
	"initial-corrupt-check":           hashesByHand,
}

// etcdExperimental begins the names that flags of etcd had until 3.6. Most have the same name without it since.
const etcdExperimental = "experimental-"

// etcdAdvice returns what to do about a flag of etcd that this server does not have, "" if it is none.
func etcdAdvice(name string) string {
	if since, ok := strings.CutPrefix(name, etcdExperimental); ok {
		if slices.Contains(keysOf(knownSettings), since) {
			return "write --" + since
		}
		return cmp.Or(etcdFlags[since], neverSo)
	}
	switch advice, ok := etcdFlags[name]; {
	case ok:
		return advice
	case strings.HasPrefix(name, "discovery-"):
		return etcdFlags["discovery"]
	case strings.HasPrefix(name, "proxy-"):
		return etcdFlags["proxy"]
	case name == "feature-gates":
		return neverSo
	}
	for section, prefix := range etcdSections {
		if key, ok := strings.CutPrefix(name, section+"."); ok {
			return cmp.Or(etcdFlags[strings.TrimPrefix(prefix, "client-")+key], etcdFlags[prefix+key], etcdFlags[prefix+"cert-"+key], neverSo)
		}
	}
	return ""
}

// etcdSections are the sections of etcd's configuration file, with how the flags of their keys begin. Most flags for clients have
// the name of their key, and some flags of both sections have the word cert after the beginning.
var etcdSections = map[string]string{"client-transport-security": "client-", "peer-transport-security": "peer-"}

// etcdVariablePrefix begins the environment variables of etcd's flags.
const etcdVariablePrefix = "ETCD_"

// refuseEtcdVariables returns an error that says what to do, if the environment has a setting of etcd's server. Files with such
// variables move with their operators, and what is ignored silently shows much later. An empty variable counts as not set.
func refuseEtcdVariables(environ []string) error {
	for _, entry := range environ {
		name, value, _ := strings.Cut(entry, "=")
		variable, ok := strings.CutPrefix(name, etcdVariablePrefix)
		if !ok || value == "" {
			continue
		}
		key := keyOf(variable)
		advice := etcdAdvice(key)
		reason, needless := strings.CutPrefix(advice, "omit it: ")
		switch {
		case slices.Contains(keysOf(knownSettings), key):
			return command.WrongUsage("%s is a variable of etcd: write %s instead", name, variableOf(key))
		case needless:
			return command.WrongUsage("%s is a variable of etcd: unset it: %s", name, reason)
		case advice != "":
			return command.WrongUsage("%s is a variable of etcd: unset it, and %s", name, advice)
		}
	}
	return nil
}

// ExplainFlag returns an error that says what to do, if err is about a flag that is unknown here and known to etcd.
// Otherwise it returns nil.
func ExplainFlag(err error) error {
	if unknown := (*pflag.NotExistError)(nil); errors.As(err, &unknown) {
		if advice := etcdAdvice(unknown.GetSpecifiedName()); advice != "" {
			return command.WrongUsage("--%s is a flag of etcd: %s", unknown.GetSpecifiedName(), advice)
		}
	}
	return nil
}
