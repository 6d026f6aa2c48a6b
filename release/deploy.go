package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

// The image as the manifest for Kubernetes names it in docs/deploy, and as releases are published.
const (
	exampleImage   = "registry.example.org/leasekeeper:VERSION"
	publishedImage = "ghcr.io/leasekeeper/leasekeeper"
)

// kubernetes writes the manifest of docs/deploy with the image of this version.
func (w *work) kubernetes() error {
	text, err := os.ReadFile(filepath.Join(w.dir, "docs", "deploy", "statefulset.yaml"))
	if err != nil {
		return err
	}
	if n := strings.Count(string(text), exampleImage); n != 1 {
		return fmt.Errorf("the manifest for Kubernetes names %s %d times, and should once", exampleImage, n)
	}
	return os.WriteFile(w.add("leasekeeper_%s_kubernetes.yaml", w.number()),
		[]byte(strings.Replace(string(text), exampleImage, publishedImage+":"+w.number(), 1)), 0o644)
}

// formula writes a formula for Homebrew, which installs the archives on macOS and Linux.
func (w *work) formula() error {
	var b strings.Builder
	fmt.Fprintf(&b, "class Leasekeeper < Formula\n  desc %q\n  homepage %q\n  version %q\n  license \"Apache-2.0\"\n", summary, homepage, w.number())
	for _, system := range []struct{ system, block string }{{"darwin", "on_macos"}, {"linux", "on_linux"}} {
		var inner strings.Builder
		for _, processor := range []struct{ processor, block string }{{"amd64", "on_intel"}, {"arm64", "on_arm"}} {
			file := w.archives[target{system.system, processor.processor}]
			if file == "" {
				continue
			}
			sum, err := sha256Of(file)
			if err != nil {
				return err
			}
			fmt.Fprintf(&inner, "    %s do\n      url \"%s/releases/download/%s/%s\"\n      sha256 %q\n    end\n", processor.block, homepage, w.version, filepath.Base(file), sum)
		}
		if inner.Len() > 0 {
			fmt.Fprintf(&b, "\n  %s do\n%s  end\n", system.block, inner.String())
		}
	}
	b.WriteString(`
  def install
    bin.install "leasekeeper"
    man1.install Dir["man/man1/*"]
    bash_completion.install "completions/leasekeeper.bash" => "leasekeeper"
    zsh_completion.install "completions/_leasekeeper"
    fish_completion.install "completions/leasekeeper.fish"
  end

  test do
    assert_equal "hi\n", shell_output("#{bin}/leasekeeper run --store sqlite:#{testpath}/leases.db jobs/nightly -- echo hi")
  end
end
`)
	return os.WriteFile(w.add("leasekeeper.rb"), []byte(b.String()), 0o644)
}
