package settings

import (
	"regexp"
	"slices"
	"testing"
)

// The advice names flags of this server only.
func TestAdviceAboutFlagsOfEtcdNamesExistingFlags(t *testing.T) {
	known := append(keysOf(knownSettings), configKey)
	flag := regexp.MustCompile(`--([a-z-]+)`)
	named := 0
	for of, advice := range etcdFlags {
		if slices.Contains(known, of) {
			t.Errorf("%s is a flag of this server too", of)
		}
		for _, m := range flag.FindAllStringSubmatch(advice, -1) {
			if named++; !slices.Contains(known, m[1]) {
				t.Errorf("%s: %q: this server has no --%s", of, advice, m[1])
			}
		}
	}
	if named < len(etcdFlags)/3 {
		t.Errorf("only %d flags are named", named)
	}
}

// The names that flags of etcd had in earlier versions are explained like their names since.
func TestEarlierNamesOfEtcdsFlagsAreExplained(t *testing.T) {
	for name, want := range map[string]string{
		"experimental-watch-progress-notify-interval":    "write --watch-progress-notify-interval",
		"experimental-corrupt-check-time":                etcdFlags["corrupt-check-time"],
		"experimental-initial-corrupt-check":             etcdFlags["corrupt-check-time"],
		"experimental-compact-hash-check-enabled":        etcdFlags["corrupt-check-time"],
		"experimental-compaction-batch-limit":            ownStorage,
		"experimental-peer-skip-client-san-verification": peerNames,
		"experimental-warning-apply-duration":            neverSo,
		"experimental-enable-lease-checkpoint-persist":   etcdFlags["enable-lease-checkpoint"],
		"experimental-distributed-tracing-address":       neverSo,
		"experimental-stop-grpc-service-on-defrag":       neverSo, // it has no other name since
		"proxy-refresh-interval":                         etcdFlags["proxy"],
		"discovery-fallback":                             etcdFlags["discovery"],
		"feature-gates":                                  neverSo,
	} {
		if got := etcdAdvice(name); got != want || want == "" {
			t.Errorf("--%s: %q, want %q", name, got, want)
		}
	}
}

// Etcd's file has flags about certificates in two sections, under shorter names.
func TestKeysInSectionsOfEtcdsFileAreItsFlags(t *testing.T) {
	for key, flag := range map[string]string{
		"client-transport-security.cert-file":        "cert-file",
		"client-transport-security.trusted-ca-file":  "trusted-ca-file",
		"client-transport-security.client-cert-file": "client-cert-file",
		"client-transport-security.client-cert-auth": "client-cert-auth",
		"client-transport-security.crl-file":         "client-crl-file",
		"client-transport-security.auto-tls":         "auto-tls",
		"client-transport-security.allowed-hostname": "client-cert-allowed-hostname",
		"peer-transport-security.cert-file":          "peer-cert-file",
		"peer-transport-security.client-cert-auth":   "peer-client-cert-auth",
		"peer-transport-security.auto-tls":           "peer-auto-tls",
		"peer-transport-security.allowed-cn":         "peer-cert-allowed-cn",
		"peer-transport-security.crl-file":           "peer-crl-file",
	} {
		if got := etcdAdvice(key); got != etcdFlags[flag] {
			t.Errorf("%s: %q, want that of %s: %q", key, got, flag, etcdFlags[flag])
		}
	}
	for _, key := range []string{"client-transport-security", "other.cert-file", "peer-listen.host"} {
		if got := etcdAdvice(key); got != "" {
			t.Errorf("%s: %q", key, got)
		}
	}
}
