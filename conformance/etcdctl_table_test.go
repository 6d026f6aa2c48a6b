package conformance

import "slices"

// ctlWithoutServer are the commands that ask no server, each with what it does.
var ctlWithoutServer = map[string]string{
	"completion": "it prints a script for the shell",
	"help":       "it prints texts of its own",
	"options":    "it prints texts of its own",
	"migrate":    "it reads the directory of a stopped etcd 3.4",
}

// ctlChecks are the commands that need a minute of load each. TestEtcdctlChecksPass runs them, if -checks is given.
var ctlChecks = []ctlStep{
	{line: "check perf --load s --prefix /perf/ --auto-compact --auto-defrag"},
	{line: "check datascale --load s --prefix /datascale/ --auto-compact --auto-defrag"},
}

// ctlFlagsOmitted are the flags of commands that the table omits, each with the reason.
var ctlFlagsOmitted = map[string]string{
	"make-mirror --dest-cacert":             "TLS at the destination",
	"make-mirror --dest-cert":               "TLS at the destination",
	"make-mirror --dest-key":                "TLS at the destination",
	"make-mirror --dest-insecure-transport": "TLS at the destination",
	"defrag --data-dir":                     "it works on the directory of a stopped etcd",
	"snapshot restore --wal-dir":            "it makes a directory for etcd, and asks no server",
	"user add --interactive":                "the table gives it as =false",
}

// ctlTable returns the lines in the order in which they run.
func ctlTable() []ctlStep {
	return slices.Concat(ctlKeyTable, ctlLeaseTable, ctlLockTable, ctlClusterTable, ctlMaintenanceTable, ctlUsersTable)
}

var ctlKeyTable = slices.Concat([]ctlStep{
	{line: "version"},
	{line: "get a"},
	{line: "put a 1"},
	{line: "put a 2 --prev-kv"},
	{line: "put a", input: "from standard input"},
	{line: "put a --ignore-value"},
	{line: "put a 3 --ignore-lease"},
	{line: "put absent --ignore-value"},
	{line: "put '' 1"},
	{line: "put b 1"},
	{line: "put a/1 x -w json"},
	{line: "put a/2 y -w fields"},
	{line: "put a/3 z -w table"},
	{line: "put a/4 z -w protobuf", exit: "the output is bytes with ids"},
	{line: "get a"},
	{line: "get a --hex"},
	{line: "get a --prefix"},
	{line: "get a --prefix -w json"},
	{line: "get a --prefix -w fields"},
	{line: "get a --prefix -w table"},
	{line: "get a --prefix -w protobuf", exit: "the output is bytes with ids"},
	{line: "get a --prefix --print-value-only"},
	{line: "get a --prefix --keys-only"},
	{line: "get a --prefix --count-only -w fields", from: 5},
	{line: "get a/2 --from-key --limit 2 -w json"},
	{line: "get a/1 a/3"},
	{line: "get a/3 a/1"},
	{line: "get a --rev 3"},
	{line: "get a --rev 3000"},
	{line: "get a --consistency s"},
	{line: "get a --consistency x"},
	{line: "get a --prefix --min-mod-rev 5 --max-mod-rev 9 -w json", from: 6},
	{line: "get a --prefix --min-create-rev 5 --max-create-rev 9 -w json", from: 6},
	{line: "get a --prefix --stream", from: 7},
	{line: "get a --prefix --stream -w json", from: 7},
	{line: "get a --prefix --stream --sort-by VALUE", from: 7},
	{line: "get a --prefix --order SIDEWAYS"},
	{line: "get a b c"},
	{line: "get"},
}, ctlSorted(), []ctlStep{
	{line: "txn", input: "mod(\"a\") > \"0\"\n\nput a 4\nget a\n\nget b\n\n"},
	{line: "txn -w json", input: "ver(\"none\") = \"0\"\n\nput c 1\ndel b\nget a --prefix\n\n\n"},
	{line: "txn -w fields", input: "val(\"a\") = \"x\"\n\n\nget a\n\n"},
	{line: "txn -w table", input: "\nget a\n\n\n"},
	{line: "txn --interactive", input: "create(\"a\") < \"100\"\n\nget a\n\nget b\n\n"},
	{line: "txn", input: "\nput a 1\nput a 2\n\n\n"},
	{line: "txn", input: "nonsense\n\n\n\n"},
	{line: "watch a --rev 2", until: 15},
	{line: "watch a/ --prefix --rev 1", until: 12},
	{line: "watch a --rev 2 --prev-kv -w json", until: 1},
	{line: "watch a a/2 --rev 2 -w fields", until: 20, exit: "how many answers carry the history is up to the server"},
	{line: "watch a --rev 2 --progress-notify", until: 3, from: 5},
	{line: "watch b a --rev 1"},
	{line: "watch --interactive", input: "watch a --rev 3\n", until: 0, exit: "it ends with its input, before or after the first event"},
	{line: "watch a --rev 2 -- echo seen", until: 4},
	{line: "del none"},
	{line: "del a/1 --prev-kv"},
	{line: "del a/2 a/4 -w json"},
	{line: "del a/ --prefix -w fields"},
	{line: "del a b --range --prev-kv -w json", from: 5},
	{line: "del b --from-key -w table"},
	{line: "compaction 5"},
	{line: "compaction 5"},
	{line: "compaction 5000"},
	{line: "compaction 9 --physical"},
	{line: "get a --rev 4"},
	{line: "watch a --rev 4"},
})

// ctlSorted returns every order and target of get.
func ctlSorted() (steps []ctlStep) {
	for _, by := range []string{"CREATE", "KEY", "MODIFY", "VALUE", "VERSION"} {
		for _, order := range []string{"ASCEND", "DESCEND"} {
			steps = append(steps, ctlStep{line: "get a --prefix --sort-by " + by + " --order " + order})
		}
	}
	return steps
}

var ctlLeaseTable = []ctlStep{
	{line: "lease list"},
	{line: "lease grant 600", keep: "lease"},
	{line: "put leased 1 --lease={lease}"},
	{line: "put leased 2 --lease=123"},
	{line: "lease grant 600 -w json"},
	{line: "lease grant 600 -w fields"},
	{line: "lease grant 600 -w table"},
	{line: "lease grant nonsense"},
	{line: "lease grant 9000000001"},
	{line: "lease list"},
	{line: "lease list -w json"},
	{line: "lease list -w fields", exit: "the fields are in the order of ids"},
	{line: "lease timetolive {lease}"},
	{line: "lease timetolive {lease} --keys"},
	{line: "lease timetolive {lease} --keys -w json"},
	{line: "lease timetolive {lease} -w fields", exit: "it prints the seconds that remain"},
	{line: "lease timetolive 1234"},
	{line: "lease timetolive 1234 -w json"},
	{line: "lease keep-alive --once {lease}"},
	{line: "lease keep-alive --once {lease} -w json"},
	{line: "lease keep-alive --once 1234"},
	{line: "lease keep-alive 1234"},
	{line: "lease keep-alive {lease}", until: 1},
	{line: "lease revoke {lease}"},
	{line: "lease revoke {lease}"},
	{line: "get leased"},
	{line: "lease grant 600", keep: "lease"},
	{line: "lease revoke {lease} -w json"},
}

var ctlLockTable = []ctlStep{
	{line: "lock name", until: 1},
	{line: "lock name --ttl 5", until: 1},
	{line: "lock name -- sh -c 'echo $ETCD_LOCK_KEY'"},
	{line: "lock name false"},
	{line: "elect office mine", until: 2},
	{line: "elect office mine -w json", until: 1, exit: "it prints keys with ids"},
	{line: "elect --listen office", until: 2, while: "elect office mine"},
	{line: "elect --listen office extra"},
	{line: "get name --prefix"},
	{line: "get office --prefix"},
}

var ctlClusterTable = []ctlStep{
	{line: "endpoint health", sorted: true},
	{line: "endpoint health --cluster", sorted: true},
	{line: "endpoint health -w json", sorted: true},
	{line: "endpoint health -w table", sorted: true},
	{line: "endpoint status", exit: "indices of the log"},
	{line: "endpoint status -w json", sorted: true},
	{line: "endpoint status -w fields", sorted: true},
	{line: "endpoint status -w table", exit: "indices of the log"},
	{line: "endpoint status --cluster -w json", sorted: true},
	{line: "endpoint hashkv", exit: "hashes are those of the server's own format"},
	{line: "endpoint hashkv --rev 10", exit: "hashes are those of the server's own format"},
	{line: "endpoint hashkv --rev 10000"},
	{line: "endpoint hashkv --cluster -w json", exit: "hashes are those of the server's own format"},
	{line: "member list", sorted: true},
	{line: "member list -w json", sorted: true},
	{line: "member list -w fields", sorted: true},
	{line: "member list -w table", exit: "the order of lines is that of ids"},
	{line: "member list --consistency s", from: 6, sorted: true},
	{line: "move-leader {follower-id} --endpoints {leader}", exit: "it prints ids whose order differs"},
	{line: "move-leader {leader-id} --endpoints {follower}"},
	{line: "move-leader 1234"},
	{line: "member update {follower-id} --peer-urls {follower-peer}"},
	{line: "member update 1234 --peer-urls http://{other-peer}"},
	{line: "member add d --learner --peer-urls http://{new-peer}", keep: "learner", sorted: true},
	{line: "member add e --learner --peer-urls http://{new-peer}", exit: "etcd's text depends on whether a second has passed"},
	{line: "member add e --peer-urls nonsense"},
	{line: "member list", sorted: true},
	{line: "member promote {learner}"},
	{line: "member promote 1234"},
	{line: "member promote {leader-id}"},
	{line: "member remove {learner}"},
	{line: "member remove {learner}"},
	{line: "member remove 1234"},
	{line: "member list -w json", sorted: true},
}

var ctlMaintenanceTable = []ctlStep{
	{line: "put kept 1"},
	{line: "alarm list"},
	{line: "alarm list -w json"},
	{line: "alarm disarm"},
	{line: "alarm disarm -w json"},
	{line: "defrag", sorted: true},
	{line: "defrag --cluster", sorted: true},
	{line: "snapshot save {dir}/snapshot --endpoints {follower}", exit: "the version is that of the file's format: see docs/compatibility.md"},
	{line: "snapshot save {dir}/snapshot"},
	{line: "snapshot status {dir}/snapshot", to: 5, exit: "hash and size are those of the file"},
	{line: "snapshot status {dir}/empty", to: 5, exit: "the text names the file"},
	{line: "snapshot restore {dir}/snapshot --data-dir {dir}/restored --name r --initial-cluster r=http://{other-peer} " +
		"--initial-advertise-peer-urls http://{other-peer} --initial-cluster-token t --skip-hash-check", to: 4, exit: "it logs"},
	{line: "snapshot restore {dir}/snapshot --data-dir {dir}/restored --name r --initial-cluster r=http://{other-peer} " +
		"--initial-advertise-peer-urls http://{other-peer} --initial-cluster-token t --skip-hash-check " +
		"--bump-revision 10 --mark-compacted --initial-memory-map-size 1000000", from: 5, to: 5, exit: "it logs"},
	{line: "make-mirror {mirror} --prefix k --dest-prefix m", mirrored: "mept", exit: "it prints something every thirty seconds only"},
	{line: "make-mirror {mirror} --prefix k --no-dest-prefix --dest-user u --dest-password p", mirrored: "ept", from: 5, exit: "as above"},
	{line: "make-mirror {mirror} --prefix k --no-dest-prefix", mirrored: "ept", to: 4, exit: "as above"},
	{line: "make-mirror {mirror} --rev 1 --max-txn-ops 5", mirrored: "kept", from: 6, exit: "as above"},
	{line: "get '' --prefix --endpoints {mirror} -w json"},
	{line: "downgrade validate 3.5", from: 6},
	{line: "downgrade cancel", from: 6},
	{line: "downgrade enable 3.5", from: 6},
	{line: "downgrade cancel", from: 6},
}

// ctlUsersTable enables authentication, so it comes last.
var ctlUsersTable = slices.Concat([]ctlStep{
	{line: "auth status", from: 5},
	{line: "auth enable"},
	{line: "auth disable"},
	{line: "user list"},
	{line: "role list"},
	{line: "user add root:r"},
	{line: "user add root:r"},
	{line: "user add alice --new-user-password a"},
	{line: "user add bob --interactive=false", input: "b\n"},
	{line: "user add cert --no-password"},
	{line: "user add '':x"},
	{line: "user add gone:x -w json"},
	{line: "user delete gone"},
	{line: "user delete gone"},
	{line: "user passwd bob --interactive=false", input: "c\n"},
	{line: "user passwd nobody --interactive=false", input: "c\n"},
	{line: "role add half"},
	{line: "role add half"},
	{line: "role add rest -w json"},
	{line: "role add gone"},
	{line: "role delete gone"},
	{line: "role delete gone"},
	{line: "role grant-permission half readwrite a c"},
	{line: "role grant-permission half read p/ --prefix"},
	{line: "role grant-permission rest write x --from-key"},
	{line: "role grant-permission rest read single"},
	{line: "role grant-permission none read a"},
	{line: "role grant-permission half sideways a"},
	{line: "role get half"},
	{line: "role get half -w json"},
	{line: "role get rest -w fields"},
	{line: "role get none"},
	{line: "role list -w json"},
	{line: "user grant-role root root"},
	{line: "user grant-role alice half"},
	{line: "user grant-role alice rest"},
	{line: "user grant-role alice none"},
	{line: "user grant-role nobody half"},
	{line: "user get alice"},
	{line: "user get alice --detail"},
	{line: "user get alice -w json"},
	{line: "user get nobody"},
	{line: "user list -w json"},
	{line: "auth enable"},
}, ctlAsUsers("root:r", "alice:a", "bob:c", "alice:wrong", "nobody:x"), []ctlStep{
	{line: "role revoke-permission half a c --user root:r"},
	{line: "role revoke-permission half p/ --prefix --user root:r"},
	{line: "role revoke-permission rest x --from-key --user root:r"},
	{line: "role revoke-permission rest absent --user root:r"},
	{line: "get a --user alice:a"},
	{line: "user revoke-role alice rest --user root:r"},
	{line: "user revoke-role alice rest --user root:r"},
	{line: "user revoke-role root root --user root:r"},
	{line: "user delete root --user root:r"},
	{line: "role delete root --user root:r"},
	{line: "role list --user root --password r"},
	{line: "user list --user root:r"},
	{line: "auth disable --user root:r"},
	{line: "get a"},
})

// ctlAsUsers returns what each of the users tries.
func ctlAsUsers(users ...string) (steps []ctlStep) {
	for _, command := range []string{
		"put a 1", "get a", "get a b", "get a z", "put p/1 1", "get p/ --prefix", "put z 1", "get z", "del a", "get ''", "put single 1", "get single",
		"lease grant 600", "lease list", "compaction 1000000", "alarm list", "user list", "role list", "user get alice", "role get half",
		"user get bob", "role get rest", "user add eve:e", "user delete eve",
	} {
		for _, user := range users {
			steps = append(steps, ctlStep{line: command + " --user " + user})
		}
		steps = append(steps, ctlStep{line: command})
	}
	return steps
}
