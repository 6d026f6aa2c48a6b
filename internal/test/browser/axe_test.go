package browser

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"context"
	"crypto/sha512"
	"encoding/base64"
	"fmt"
	"io"
	"net/http"
	"testing"
	"time"

	"github.com/chromedp/chromedp"

	"github.com/leasekeeper/leasekeeper/backend/memory"
	"github.com/leasekeeper/leasekeeper/internal/test/required"
)

// The version of axe-core, and the checksum of its archive in the npm registry.
const (
	axeURL      = "https://registry.npmjs.org/axe-core/-/axe-core-4.14.1.tgz"
	axeChecksum = "FHfa+lmNjQZfJz1q8wKqIDwC6DExcHt/pkjNQb09a3NPjCKg2rhu5qb2S4r76ASyFNNtuFooJpZe37OgudVGtQ=="
	mostOfAxe   = 16 << 20
)

// TestAxeFindsNothing runs axe-core's rules on each page of a store in memory and of a server.
func TestAxeFindsNothing(t *testing.T) {
	if !required.Is("axe") {
		t.Skip("axe-core is of the npm registry: LEASEKEEPER_TEST_REQUIRE=axe,chromium gets it and runs this test")
	}
	axe, err := getAxe(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	s := visit(t, memory.New().Backend(), nil)
	s.claim(job, "alice", time.Hour)
	s.claim(job, "bob", time.Hour)
	s.openWhen("names", `document.querySelectorAll(".rows tbody tr").length === 1`)
	s.satisfies(axe, pages...)
	own, conn := onServer(t, true)
	own.claim(job, "alice", time.Hour)
	own.claim(job, "bob", time.Hour)
	own.lockByRecipe(conn, "builds/main")
	own.openWhen("foreign", `document.querySelector(".foreign tbody tr") !== null`)
	own.satisfies(axe, "", "name?name="+job, "cluster", "audit", "foreign")
	addUsers(t, conn)
	own.do(chromedp.Navigate(own.root + "login"))
	own.until(`document.querySelector("#password") !== null`)
	own.accessible(axe, "the login")
	own.login("root")
	own.satisfies(axe, "", "audit", "foreign")
}

// satisfies runs axe-core's rules on pages, wide and narrow, light and dark.
func (s *site) satisfies(axe string, pages ...string) {
	s.Helper()
	for _, width := range []int64{1280, 390} {
		for _, scheme := range []string{"light", "dark"} {
			if err := s.Size(width, 844, scheme); err != nil {
				s.Fatal(err)
			}
			for _, page := range pages {
				s.open(page)
				s.do(chromedp.Evaluate[chromedp.Void](`for (const d of document.querySelectorAll("details")) d.open = true`))
				s.accessible(axe, fmt.Sprintf("%q, %s at %d pixels", page, scheme, width))
			}
		}
	}
}

// accessible runs axe-core's rules on the open page.
func (s *site) accessible(axe, what string) {
	s.Helper()
	s.do(chromedp.Evaluate[chromedp.Void](axe))
	for _, found := range ask[[]string](s, `axe.run().then((r) => r.violations.map((v) => v.impact + " " + v.id + ": " + v.nodes.map((n) => n.html).join("\n")))`) {
		s.Errorf("%s: %s", what, found)
	}
}

// getAxe gets the script of axe-core from the npm registry.
func getAxe(ctx context.Context) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, axeURL, nil)
	if err != nil {
		return "", err
	}
	answer, err := http.DefaultClient.Do(r)
	if err != nil {
		return "", err
	}
	defer answer.Body.Close()
	archive, err := io.ReadAll(io.LimitReader(answer.Body, mostOfAxe))
	if err != nil {
		return "", err
	}
	if sum := sha512.Sum512(archive); base64.StdEncoding.EncodeToString(sum[:]) != axeChecksum {
		return "", fmt.Errorf("%s: %s and %d bytes with another checksum", axeURL, answer.Status, len(archive))
	}
	unpacked, err := gzip.NewReader(bytes.NewReader(archive))
	if err != nil {
		return "", err
	}
	for files := tar.NewReader(unpacked); ; {
		file, err := files.Next()
		if err != nil {
			return "", fmt.Errorf("%s: axe.min.js: %w", axeURL, err)
		}
		if file.Name == "package/axe.min.js" {
			text, err := io.ReadAll(io.LimitReader(files, mostOfAxe))
			return string(text), err
		}
	}
}
