package sweep

import (
	"flag"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"
)

var (
	packages = flag.String("packages", "", "sweep these packages, by their folders with commas between them, or all")
	only     = flag.String("only", "", "sweep only the mutants that match this regular expression, and do not judge the rest of the list")
	quick    = flag.Duration("quick", 0, "a first look: use only the first suite of each package, and its tests of at most this length; the list is not judged")
	thorough = flag.Bool("thorough", false, "try listed survivors with all tests too")
	results  = flag.String("results", "", "the folder that receives results; it must lie outside the repository")
)

// simulated are worlds of the simulator that end soon.
var simulated = suite{folder: "internal/test/simulation", only: "^(TestSeeds|TestAlone)$", flags: []string{"-seeds=2"}}

// driven are the tests of a member's driver, without the slowest, which are about files and logs.
var driven = suite{folder: "internal/node", not: "^(TestMemberWaitsForDescriptors|TestTornUnsyncedSectorsAreNoDamage|TestDamageAnywhereInLogIsReported)$"}

// composed are the tests of a member for a package that it is composed of.
var composed = suite{folder: "internal/replica", not: "^TestCrashAtEveryEffect$"}

// ruled are the tests of a member with users.
var ruled = suite{folder: "internal/replica", only: "Policy|Access|CommandsAreChecked|Renewals|Claims?(Belong|OfAnother)|^TestTranscripts$"}

// counted are the tests of a member that counts what users own.
var counted = suite{folder: "internal/replica", only: "Quota|^TestLeasesHaveNoOwnerWithoutAccess$|^TestMembersCountAlike$"}

// recorded are the tests of a member with an audit log.
var recorded = suite{folder: "internal/node", only: "^TestAudit"}

// guarded are the tests of a server with users, and tabled tries every call as every kind of user.
var (
	guarded = suite{folder: "server", only: "User|Right|Audit|Quota|Refused|NeedTheRole|ActsWithTheToken|WithoutTokens|PassedOver|KnownToTheGuard"}
	tabled  = suite{folder: "internal/test/rightsmatrix", only: "^TestEvery(CallAsEveryUser|RouteAsEveryUser)$"}
)

// subjects are the packages that are swept, and the suites that have to notice their mutants.
var subjects = []struct {
	folder string
	suites []suite
}{
	{"lessor", []suite{{folder: "lessor", not: "^TestMemoryOfALeaseIsBounded$"}, composed, simulated}},
	// TestMistakesAreNoticed breaks the rules on its own.
	{"masterlease", []suite{{folder: "masterlease", not: "^TestMistakesAreNoticed$"}, composed, simulated}},
	{"internal/ownership", []suite{{folder: "internal/ownership"}, composed, simulated}},
	{"internal/raftlog", []suite{{folder: "internal/raftlog"}, composed, driven}},
	{"internal/statexfer", []suite{{folder: "internal/statexfer"}, composed, driven}},
	{"internal/replica/record", []suite{{folder: "internal/replica/record"}, composed, driven}},
	{"internal/replica/intake", []suite{{folder: "internal/replica/intake"}, composed}},
	{"internal/replica/message", []suite{{folder: "internal/replica/message"}, composed}},
	{"internal/replica/gate", []suite{{folder: "internal/replica/gate"}, composed}},
	{"internal/replica/entry", []suite{{folder: "internal/replica/entry"}, composed}},
	{"internal/replica/yield", []suite{{folder: "internal/replica/yield"}, composed}},
	{"internal/replica/event", []suite{composed}},
	{"internal/replica/roster", []suite{{folder: "internal/replica/roster"}, composed}},
	{"internal/access", []suite{{folder: "internal/access"}, ruled}},
	{"internal/replica/permit", []suite{{folder: "internal/replica/permit"}, ruled}},
	{"internal/replica/quota", []suite{{folder: "internal/replica/quota"}, counted}},
	{"internal/replica/audit", []suite{{folder: "internal/replica/audit"}, recorded}},
	{"server/internal/guard", []suite{{folder: "server/internal/guard"}, guarded, tabled}},
	{"server/internal/login", []suite{{folder: "server/internal/login"}, guarded}},
	{"internal/replica", []suite{{folder: "internal/replica"}, driven, simulated}},
}

func TestEveryGuardIsTested(t *testing.T) {
	if *packages == "" {
		t.Skip("a sweep takes minutes: choose -packages and -results")
	}
	repository, err := filepath.Abs(root)
	if err != nil {
		t.Fatal(err)
	}
	into, err := filepath.Abs(*results)
	if err != nil {
		t.Fatal(err)
	}
	if *results == "" || strings.HasPrefix(into+"/", repository+"/") {
		t.Fatalf("-results=%q: name a folder outside %s", *results, repository)
	}
	chosen := strings.Split(*packages, ",")
	swept := 0
	for _, subject := range subjects {
		if *packages == "all" || slices.Contains(chosen, subject.folder) {
			swept++
			if *quick > 0 {
				subject.suites = subject.suites[:1]
			}
			t.Run(subject.folder, func(t *testing.T) { judge(t, begin(t, subject.folder, subject.suites, into)) })
		}
	}
	if *packages != "all" && swept != len(chosen) {
		t.Errorf("-packages=%q: %d of these are in the list of subjects", *packages, swept)
	}
}

// listedLimit is how long a test may take that tries a listed survivor. Nothing can notice that, by the reason in the
// list, and to try each with all tests takes as long as all other mutants together.
const listedLimit = time.Second

// judge hunts the mutants of a package and compares the survivors with the list.
func judge(t *testing.T, s *sweeping) {
	began := time.Now()
	listed := survivorsOf(t, s.folder)
	chosen := regexp.MustCompile(*only)
	mutants := s.mutants
	if *only != "" {
		mutants = slices.DeleteFunc(slices.Clone(mutants), func(m mutant) bool { return !chosen.MatchString(m.key()) })
		listed = slices.DeleteFunc(listed, func(e excused) bool { return !chosen.MatchString(e.key) })
	}
	by := make(map[string]string)
	survived := 0
	for i, m := range mutants {
		binaries := s.binaries
		switch isListed := slices.ContainsFunc(listed, func(e excused) bool { return e.key == m.key() }); {
		case *quick > 0:
			binaries = []*binary{s.binaries[0].upTo(*quick)}
		case isListed && !*thorough:
			binaries = []*binary{s.binaries[0].upTo(listedLimit)}
		}
		test := s.hunt(t, m, binaries)
		by[m.key()] = test
		if test == "" {
			survived++
			test = "NOBODY"
		}
		t.Logf("%d of %d, %s: %s %s: noticed by %s", i+1, len(mutants), time.Since(began).Round(time.Second), m.place, m.key(), test)
	}
	if *quick > 0 {
		listed = nil
	}
	for _, difference := range compare(mutants, by, listed) {
		t.Error(difference)
	}
	t.Logf("%s: %d guards, %d of them noticed by no test, %d listed", s.folder, len(mutants), survived, len(listed))
}
