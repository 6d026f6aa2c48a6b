package settings

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/knadh/koanf/parsers/yaml"
	"github.com/knadh/koanf/providers/file"
	"github.com/knadh/koanf/v2"
	"github.com/spf13/pflag"

	"github.com/leasekeeper/leasekeeper/cmd/leasekeeper/internal/command"
	"github.com/leasekeeper/leasekeeper/cmd/leasekeeper/internal/console"
)

// Server holds the settings of `serve`. Each setting has one key, which names the flag and the key in the file. In
// capitals after LEASEKEEPER_ it names the environment variable.
type Server struct {
	Name            string
	DataDir         string
	Listen          string
	advertise       string
	HTTP            string
	console         string
	Cert            string
	Key             string
	ClientCA        string
	ClientCRL       string
	retention       string
	limits          limits
	backup          backup
	users           users
	clusterSettings clusterSettings
	discovery       discovery
	LogLevel        string
	LogFormat       string
}

const (
	variablePrefix = "LEASEKEEPER_"
	defaultName    = "default" // of a member
	dataDirKey     = "data-dir"
	configKey      = "config" // the path of the file; a flag and a variable, but not a key in the file
)

// settingOf describes one of the settings that make up an S.
type settingOf[S any] struct {
	key   string
	value string // the default
	usage string // the word in backquotes names the value in help
	field func(*S) *string
}

type setting = settingOf[Server]

// knownSettings are all settings of `serve`.
var knownSettings = slices.Concat(mainSettings, clusterSettingsKnown, discoverySettings, limitSettings, userSettings, backupSettings, logSettings)

var mainSettings = []setting{
	{"name", defaultName, "the member's `name`, shown in lists of members", func(s *Server) *string { return &s.Name }},
	{dataDirKey, "leasekeeper.data", "the data `directory`; created if it does not exist", func(s *Server) *string { return &s.DataDir }},
	{"listen", "127.0.0.1:2379", "`host:port` to serve clients on (gRPC, and HTTP with JSON); port 0 picks a free port", func(s *Server) *string { return &s.Listen }},
	{"advertise", "", "`host:port` at which clients reach this server, or several separated by commas (default: the address of --listen; required if that is every interface)", func(s *Server) *string { return &s.advertise }},
	{"http", "127.0.0.1:2381", "`host:port` for health, version, metrics and the web console, or off", func(s *Server) *string { return &s.HTTP }},
	{"console", "true", "serve the web console on the address of --http, below /console/; read-only until access is enabled", func(s *Server) *string { return &s.console }},
	{"auto-compaction-retention", "1h", "the `duration` for which old revisions of keys can be read before they are removed; 0 keeps them forever", func(s *Server) *string { return &s.retention }},
	{"cert", "", "`file` with the certificate to show to clients (PEM); the server then speaks TLS only", func(s *Server) *string { return &s.Cert }},
	{"key", "", "`file` with the certificate's key", func(s *Server) *string { return &s.Key }},
	{"client-ca", "", "`file` with certificate authorities (PEM): serve only clients with a certificate from one of them", func(s *Server) *string { return &s.ClientCA }},
	{"client-crl", "", "`file` with lists of revoked certificates (PEM), signed by authorities in --client-ca: refuse clients with one of them", func(s *Server) *string { return &s.ClientCRL }},
}

var logSettings = []setting{
	{"log-level", "info", "lowest `level` to log: debug, info, warn or error", func(s *Server) *string { return &s.LogLevel }},
	{"log-format", "text", "`format` of the log: text or json", func(s *Server) *string { return &s.LogFormat }},
}

// RegisterServer registers flags for the settings of `serve`, and --config.
func RegisterServer(flags *pflag.FlagSet) {
	for _, k := range knownSettings {
		flags.String(k.key, k.value, k.usage)
		if k.value == "false" || k.value == "true" {
			flags.Lookup(k.key).NoOptDefVal = "true"
		}
	}
	registerConfig(flags)
}

// RegisterDataDir registers the flag of the data directory alone, for a command that looks at a server's machine. [LoadServer]
// takes the other settings from the environment and the file of --config.
func RegisterDataDir(flags *pflag.FlagSet) {
	flags.String(dataDirKey, "", "the data `directory` of a server on this machine (env "+variableOf(dataDirKey)+")")
}

func registerConfig(flags *pflag.FlagSet) {
	flags.String(configKey, "", "a YAML `file` with these settings, under the flags' names")
}

// LoadServer returns the settings of `serve`, each from the first place that has it. It refuses settings of etcd.
func LoadServer(flags *pflag.FlagSet, environ []string) (Server, error) {
	if err := refuseEtcdVariables(environ); err != nil {
		return Server{}, err
	}
	return resolve(knownSettings, flags, serveEnviron(environ))
}

// resolve returns each setting from the first place that has it: flags, environment, file, default.
func resolve[S any](known []settingOf[S], flags *pflag.FlagSet, environ []string) (S, error) {
	var s S
	k, err := given(flags, environ, keysOf(known))
	if err != nil {
		return s, err
	}
	for _, known := range known {
		field := known.field(&s)
		switch {
		case flags.Changed(known.key):
			*field, _ = flags.GetString(known.key)
		case k.Exists(known.key):
			*field = k.String(known.key)
		default:
			*field = known.value
		}
	}
	return s, nil
}

// given returns the settings of the environment and of the file, by key. The environment comes first. mine are the keys of
// this command, for errors.
func given(flags *pflag.FlagSet, environ []string, mine []string) (*koanf.Koanf, error) {
	variables, err := settingVariables(environ, mine)
	if err != nil {
		return nil, err
	}
	k := koanf.New(".")
	path := variables[configKey]
	if flags.Changed(configKey) {
		path, _ = flags.GetString(configKey)
	}
	if path != "" {
		if err := loadFile(k, path, mine); err != nil {
			return nil, err
		}
	}
	for key, value := range variables {
		if err := k.Set(key, value); err != nil {
			return nil, command.WrongUsage("%s: %v", variableOf(key), err)
		}
	}
	return k, nil
}

// DescribesServer reports whether --data-dir, the environment or the file of --config has a setting of `serve`.
func DescribesServer(flags *pflag.FlagSet, environ []string) (bool, error) {
	mine := keysOf(knownSettings)
	k, err := given(flags, serveEnviron(environ), mine)
	if err != nil {
		return false, err
	}
	return flags.Changed(dataDirKey) || slices.ContainsFunc(mine, k.Exists), nil
}

// loadFile reads a configuration file. It refuses keys that no command knows, and values that are lists or maps. mine
// are the keys of this command, for the error.
func loadFile(k *koanf.Koanf, path string, mine []string) error {
	if err := k.Load(file.Provider(path), yaml.Parser()); err != nil {
		if errors.Is(err, fs.ErrNotExist) {
			return command.WrongUsage("there is no configuration file %s: fix --config, or omit it", path)
		}
		return command.WrongUsage("cannot read the configuration file %s: %v", path, err)
	}
	for _, key := range k.Keys() {
		if advice := etcdAdvice(key); advice != "" && !isKnown(key) {
			return command.WrongUsage("%q in %s is a setting of etcd: %s", key, path, advice)
		}
		if !isKnown(key) {
			return command.WrongUsage("unknown key %q in %s; the known keys are %s", key, path, strings.Join(mine, ", "))
		}
		switch value := k.Get(key).(type) {
		case nil, []any, map[string]any:
			return command.WrongUsage("the value of %q in %s is not plain text or a number: write a single value", key, path)
		case string:
		default:
			if err := k.Set(key, fmt.Sprint(value)); err != nil {
				return command.WrongUsage("%q in %s: %v", key, path, err)
			}
		}
	}
	return nil
}

// settingVariables returns the settings in the environment, by key. It refuses unknown variables with the prefix
// LEASEKEEPER_, because a misspelt name would otherwise show much later. An empty variable counts as not set.
func settingVariables(environ []string, mine []string) (map[string]string, error) {
	found := make(map[string]string)
	for _, entry := range environ {
		name, value, _ := strings.Cut(entry, "=")
		if !strings.HasPrefix(name, variablePrefix) || slices.Contains(otherVariables, name) || setByKubernetes(name) || strings.HasPrefix(name, testPrefix) {
			continue
		}
		key := keyOf(strings.TrimPrefix(name, variablePrefix))
		if key != configKey && !isKnown(key) || name != variableOf(key) {
			return nil, command.WrongUsage("unknown environment variable %s: unset it, or correct its name; the known variables are %s", name, strings.Join(knownVariables(mine), ", "))
		}
		if value != "" {
			found[key] = value
		}
	}
	return found, nil
}

// The variables of the commands that talk to one server. These commands read no configuration file.
const (
	EndpointVariable   = "LEASEKEEPER_ENDPOINT"
	CAVariable         = "LEASEKEEPER_CACERT"
	ClientCertVariable = "LEASEKEEPER_CLIENT_CERT" // LEASEKEEPER_CERT is the server's own
	ClientKeyVariable  = "LEASEKEEPER_CLIENT_KEY"

	UserVariable         = "LEASEKEEPER_USER"
	PasswordVariable     = "LEASEKEEPER_PASSWORD"
	PasswordFileVariable = "LEASEKEEPER_PASSWORD_FILE"
)

const (
	DefaultEndpoint = "127.0.0.1:2379"
	DefaultTimeout  = 5 * time.Second
)

// clientVariables are the variables of the commands that talk to one server.
var clientVariables = []string{EndpointVariable, CAVariable, ClientCertVariable, ClientKeyVariable, UserVariable, PasswordVariable, PasswordFileVariable}

// otherVariables are known variables that are not settings.
var otherVariables = slices.Concat(clientVariables, runVariables)

// testPrefix begins the names of variables that only tests read.
const testPrefix = variablePrefix + "TEST_"

// setByKubernetes reports whether Kubernetes sets the variable in every pod if there is a service called leasekeeper.
func setByKubernetes(name string) bool {
	rest := strings.TrimPrefix(name, variablePrefix)
	return rest == "PORT" || strings.HasPrefix(rest, "PORT_") || strings.HasPrefix(rest, "SERVICE_")
}

// variableOf returns the environment variable of a key.
func variableOf(key string) string {
	return variablePrefix + strings.ToUpper(strings.ReplaceAll(key, "-", "_"))
}

// keyOf returns the key of a variable without its prefix.
func keyOf(variable string) string { return strings.ReplaceAll(strings.ToLower(variable), "_", "-") }

// isKnown reports whether a command knows the key.
func isKnown(key string) bool {
	return slices.Contains(keysOf(knownSettings), key) || slices.Contains(keysOf(nameSettings), key)
}

func keysOf[S any](known []settingOf[S]) []string {
	keys := make([]string, 0, len(known))
	for _, k := range known {
		keys = append(keys, k.key)
	}
	return keys
}

func knownVariables(keys []string) []string {
	names := make([]string, 0, len(keys)+1+len(clientVariables))
	for _, key := range keys {
		names = append(names, variableOf(key))
	}
	return append(append(names, variableOf(configKey)), clientVariables...)
}

// Console reports whether the server serves the web console.
func (s Server) Console() (bool, error) {
	on, err := strconv.ParseBool(s.console)
	if err != nil {
		return false, command.WrongUsage("console is %q: write true or false", s.console)
	}
	return on, nil
}

// Advertised returns the addresses of --advertise; nil for none.
func (s Server) Advertised() []string {
	var all []string
	for part := range strings.SplitSeq(s.advertise, ",") {
		if part = strings.TrimSpace(part); part != "" {
			all = append(all, part)
		}
	}
	return all
}

// Logger returns a logger with the level and the format of the settings.
func (s Server) Logger(to io.Writer) (*slog.Logger, error) {
	var level slog.Level
	switch s.LogLevel {
	case "debug", "info", "warn", "error":
		if err := level.UnmarshalText([]byte(s.LogLevel)); err != nil {
			return nil, command.WrongUsage("log-level: %v", err)
		}
	default:
		return nil, command.WrongUsage("unknown log-level %q: write debug, info, warn or error", s.LogLevel)
	}
	options := &slog.HandlerOptions{Level: level}
	switch s.LogFormat {
	case "text":
		return slog.New(slog.NewTextHandler(to, options)), nil
	case "json":
		return slog.New(slog.NewJSONHandler(console.EscapedJSON(to), options)), nil
	}
	return nil, command.WrongUsage("unknown log-format %q: write text or json", s.LogFormat)
}
