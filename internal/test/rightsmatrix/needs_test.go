package rightsmatrix

import (
	"regexp"
	"strings"
	"testing"
)

// needs says what each method needs, by the beginning of its name. The longest beginning that fits counts.
//
//	public      nothing, not even a valid token
//	nothing     nothing, but no invalid token
//	user        a user
//	things      the rights to all keys, names and leases that the request names
//	keys        the rights to all keys and names that it names; which user made their leases does not matter
//	everything  the rights to all keys or names
//	root        the role root
//	self        to be the user, or to have the role, that the request names; or the role root
var needs = map[string]string{
	"/grpc.":                          "public",
	"/etcdserverpb.Auth/Authenticate": "public",
	"/etcdserverpb.Auth/AuthStatus":   "nothing",
	"/etcdserverpb.Auth/":             "root",
	"/etcdserverpb.Auth/UserGet":      "self",
	"/etcdserverpb.Auth/RoleGet":      "self",

	"/etcdserverpb.Cluster/":           "root",
	"/etcdserverpb.Cluster/MemberList": "user",
	"/etcdserverpb.Maintenance/":       "root",
	"/etcdserverpb.Maintenance/Alarm":  "root", // but see needOf
	"/etcdserverpb.Maintenance/Status": "user",

	"/etcdserverpb.KV/":                   "things",
	"/etcdserverpb.KV/Compact":            "root",
	"/etcdserverpb.Lease/":                "things",
	"/etcdserverpb.Lease/LeaseGrant":      "user",
	"/etcdserverpb.Lease/LeaseLeases":     "everything",
	"/etcdserverpb.Lease/LeaseTimeToLive": "things", // but see needOf
	"/etcdserverpb.Watch/":                "things",
	"/v3lockpb.Lock/":                     "keys",
	"/v3electionpb.Election/":             "keys",

	"/leasekeeper.v1.Leasekeeper/":            "things",
	"/leasekeeper.v1.Leasekeeper/Get":         "keys",
	"/leasekeeper.v1.Leasekeeper/GetMark":     "keys",
	"/leasekeeper.v1.Leasekeeper/ReplaceMark": "keys",
	"/leasekeeper.v1.Leasekeeper/History":     "keys",
	"/leasekeeper.v1.Leasekeeper/Revoke":      "keys",
	"/leasekeeper.v1.Leasekeeper/Pin":         "keys",
	"/leasekeeper.v1.Leasekeeper/Unpin":       "keys",
	"/leasekeeper.v1.Leasekeeper/Prefer":      "keys",
	"/leasekeeper.v1.Leasekeeper/Transfer":    "keys", // half may administer what it names
	"/leasekeeper.v1.Leasekeeper/Audit":       "root",
	"/leasekeeper.v1.Leasekeeper/GrantRight":  "root",
	"/leasekeeper.v1.Leasekeeper/RevokeRight": "root",
	"/leasekeeper.v1.Leasekeeper/ListRights":  "self",
	"/leasekeeper.v1.Leasekeeper/SetQuota":    "root",
	"/leasekeeper.v1.Leasekeeper/GetQuota":    "root",
	"/leasekeeper.v1.Leasekeeper/ListUnowned": "root",

	"/leasekeeper.v1.Members/":     "root",
	"/leasekeeper.v1.Members/Get":  "user",
	"/leasekeeper.v1.Members/List": "user",
}

// needOf returns what a request needs.
func needOf(r *row) (need string) {
	longest := -1
	for prefix, n := range needs { // order: the longest one is one
		if strings.HasPrefix(r.method, prefix) && len(prefix) > longest {
			longest, need = len(prefix), n
		}
	}
	switch {
	case strings.HasSuffix(r.method, "/Alarm") && r.request == "-", strings.HasSuffix(r.method, "/LeaseTimeToLive") && !strings.Contains(r.request, "keys: true"),
		strings.HasSuffix(r.method, "/ListRights") && r.request == "-":
		return "user"
	case strings.HasPrefix(r.method, "/leasekeeper.v1.Leasekeeper/") && r.request == "-":
		return "everything"
	}
	return need
}

var (
	keyField   = regexp.MustCompile(`\b(key|range_end|name|prefix): "([^"]*)"`)
	leaseField = regexp.MustCompile(`\b(?:lease|leases|ID): (\$?\w+)`)
	selfField  = regexp.MustCompile(`\b(?:name|role): "([^"]*)"`)
)

// ofHalf reports whether half has the rights to everything that a request names: all keys and names begin with half/, ranges end
// there too, and leases have keys of this kind alone. $held is half's own claim. A lease that does not exist needs no right.
func ofHalf(r *row, leases bool) bool {
	for _, found := range keyField.FindAllStringSubmatch(r.request, -1) {
		if field, text := found[1], found[2]; !strings.HasPrefix(text, "half/") && !(field == "range_end" && text == "half0") {
			return false
		}
	}
	for _, found := range leaseField.FindAllStringSubmatch(r.request, -1) {
		switch found[1] {
		case "$leaseOther", "$leaseBoth", "$heldByRoot", "$heldOther":
			if leases {
				return false
			}
		}
	}
	return true
}

// isBare reports whether a request names nothing but leases without keys, or ones that do not exist.
func isBare(r *row) bool {
	if keyField.MatchString(r.request) {
		return false
	}
	for _, found := range leaseField.FindAllStringSubmatch(r.request, -1) {
		if found[1] != "$leaseBare" && found[1] != "7" {
			return false
		}
	}
	return true
}

// may reports whether a caller of the table has what a request needs. Half has its role, unless that was withdrawn.
func may(r *row, column string, withdrawn bool) bool {
	half := column == "half" && !withdrawn
	user := column == "half" || column == "bare"
	switch need := needOf(r); {
	case need == "public":
		return true
	case column == "forged":
		return false
	case need == "nothing", column == "root":
		return true
	case need == "user":
		return user
	case need == "things":
		return half && ofHalf(r, true) || user && isBare(r)
	case need == "keys":
		return half && ofHalf(r, false)
	case need == "self":
		asked := selfField.FindStringSubmatch(r.request)[1]
		return asked == "half" && (half || column == "half" && strings.HasSuffix(r.method, "/UserGet"))
	}
	return false
}

// refusal is the outcome for a caller that lacks what a request needs.
func refusal(r *row, column string) outcome {
	etcd := strings.HasPrefix(r.method, "/etcdserverpb.")
	need := needOf(r)
	var refused outcome = "PermissionDenied"
	switch {
	case column == "forged":
		refused = badToken
	case column == "nobody" && strings.HasPrefix(r.method, "/leasekeeper."):
		refused = "Unauthenticated"
	case column == "nobody":
		refused = userEmpty
	case column == "stranger" && etcd && (need == "root" || need == "self"):
		refused = noUser
	case strings.HasSuffix(r.method, "Leasekeeper/Renew"):
		refused = "refused:DENIED"
	}
	if strings.HasPrefix(r.method, "/v3") {
		return "Unknown(" + refused + ")" // as clients of etcd's own server receive it
	}
	return refused
}

// isRefusal reports whether an outcome says that the caller lacks something. A user that a request names may be missing, too.
func isRefusal(got outcome) bool {
	switch strings.TrimSuffix(strings.TrimPrefix(string(got), "Unknown("), ")") {
	case string(userEmpty), string(badToken), "PermissionDenied", "Unauthenticated", "refused:DENIED":
		return true
	}
	return false
}

// TestTableFollowsFromTheNeeds derives the refusals from what each method needs, and compares them with the table.
func TestTableFollowsFromTheNeeds(t *testing.T) {
	for _, r := range readTable(t) {
		if needOf(r) == "" {
			t.Errorf("%s:%d: needs does not say what %s needs", matrixFile, r.line, r.method)
			continue
		}
		check := func(column string, withdrawn bool) {
			got, permitted := r.cell(column, withdrawn), may(r, column, withdrawn)
			if got == "-" {
				return
			}
			if permitted && isRefusal(got) || !permitted && got != refusal(r, column) {
				t.Errorf("%s:%d: %s {%s} as %s, withdrawn %v: the table has %s, and the needs say %v, else %s",
					matrixFile, r.line, r.method, r.request, column, withdrawn, got, permitted, refusal(r, column))
			}
		}
		for _, column := range columns {
			check(column, false)
		}
		check("half", true)
	}
}
