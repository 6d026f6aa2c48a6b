package main

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/leasekeeper/leasekeeper/internal/test/required"
)

// layout is an OCI image layout, read back from its archive.
type layout map[string][]byte

func readImage(t testing.TB) layout {
	t.Helper()
	w := built(t)
	f, err := os.Open(filepath.Join(w.out, "leasekeeper_0.1.0_image.tar"))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	l := make(layout)
	for r := tar.NewReader(f); ; {
		h, err := r.Next()
		if err == io.EOF {
			return l
		}
		if err != nil {
			t.Fatal(err)
		}
		if l[h.Name], err = io.ReadAll(r); err != nil {
			t.Fatal(err)
		}
	}
}

// get returns the part that a descriptor names, after it has checked size and checksum.
func (l layout) get(t testing.TB, d descriptor) []byte {
	t.Helper()
	data := l["blobs/"+strings.Replace(d.Digest, ":", "/", 1)]
	if sum := sha256.Sum256(data); "sha256:"+hex.EncodeToString(sum[:]) != d.Digest || int64(len(data)) != d.Size {
		t.Fatalf("the part %+v is not in the image, or differs", d)
	}
	return data
}

// decode reads a part as JSON. It fails at a field that the type does not have.
func (l layout) decode(t testing.TB, data []byte, into any) {
	t.Helper()
	d := json.NewDecoder(bytes.NewReader(data))
	d.DisallowUnknownFields()
	if err := d.Decode(into); err != nil {
		t.Fatalf("%v in %s", err, data)
	}
}

// open returns the configuration of the image for a processor, and its only layer, unpacked.
func (l layout) open(t testing.TB, processor string) (imageConfig, []byte) {
	t.Helper()
	var outer, inner index
	l.decode(t, l["index.json"], &outer)
	if len(outer.Manifests) != 1 || outer.Manifests[0].Annotations["org.opencontainers.image.ref.name"] != publishedImage+":0.1.0" {
		t.Fatalf("programs that load the archive need one image with its name in the index: %+v", outer)
	}
	l.decode(t, l.get(t, outer.Manifests[0]), &inner)
	for _, d := range inner.Manifests {
		if d.Platform.Architecture != processor || d.Platform.OS != "linux" {
			continue
		}
		var m manifest
		l.decode(t, l.get(t, d), &m)
		var c imageConfig
		l.decode(t, l.get(t, m.Config), &c)
		if len(m.Layers) != 1 || len(c.RootFS.DiffIDs) != 1 {
			t.Fatalf("the image has %d layers, and its configuration %d", len(m.Layers), len(c.RootFS.DiffIDs))
		}
		z, err := gzip.NewReader(bytes.NewReader(l.get(t, m.Layers[0])))
		if err != nil {
			t.Fatal(err)
		}
		layer, err := io.ReadAll(z)
		if err != nil {
			t.Fatal(err)
		}
		if sum := sha256.Sum256(layer); "sha256:"+hex.EncodeToString(sum[:]) != c.RootFS.DiffIDs[0] {
			t.Error("the configuration has another checksum of the layer")
		}
		return c, layer
	}
	t.Fatalf("there is no image for %s", processor)
	return imageConfig{}, nil
}

func TestImageHasEveryLinuxTargetAndNoRoot(t *testing.T) {
	l := readImage(t)
	for _, target := range testTargets() {
		if target.system != "linux" {
			continue
		}
		c, _ := l.open(t, target.processor)
		if c.Config.User != imageUserName || c.Architecture != target.processor || c.OS != "linux" {
			t.Errorf("the image for %v has the configuration %+v", target, c)
		}
	}
}

// The operator's page explains one image, however it was built.
func TestImageRunsWhatTheContainerfileSays(t *testing.T) {
	c, _ := readImage(t).open(t, "amd64")
	says := deployed(t, "Containerfile")
	for _, line := range []string{
		"USER " + c.Config.User,
		`ENTRYPOINT ["` + strings.Join(c.Config.Entrypoint, `", "`) + `"]`,
		`CMD ["` + strings.Join(c.Config.Cmd, `", "`) + `"]`,
	} {
		if !strings.Contains(says+"\n", "\n"+line+"\n") {
			t.Errorf("docs/deploy/Containerfile lacks the line %q, which the image has", line)
		}
	}
}

// unpack writes a layer below a directory, with the owners that it names.
func unpack(t testing.TB, layer []byte, dir string) {
	t.Helper()
	for r := tar.NewReader(bytes.NewReader(layer)); ; {
		h, err := r.Next()
		if err == io.EOF {
			return
		}
		path := filepath.Join(dir, h.Name)
		if err == nil && h.Typeflag == tar.TypeDir {
			err = os.Mkdir(path, os.FileMode(h.Mode))
		} else if err == nil {
			var data []byte
			if data, err = io.ReadAll(r); err == nil {
				err = os.WriteFile(path, data, os.FileMode(h.Mode))
			}
		}
		if err == nil {
			err = os.Chown(path, h.Uid, h.Gid)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
}

// bundle writes what a runtime needs to run the image as its configuration says, with a read-only root directory and no network.
// The image receives its settings as a file, and an empty volume for its data, which takes its owner and mode from the image.
func bundle(t testing.TB, c imageConfig, layer []byte, settings string) string {
	t.Helper()
	dir := t.TempDir()
	root := filepath.Join(dir, "rootfs")
	if err := os.Mkdir(root, 0o755); err != nil {
		t.Fatal(err)
	}
	unpack(t, layer, root)
	for _, mountPoint := range []string{"proc", "dev"} { // runtimes of images make these themselves
		if err := os.Mkdir(filepath.Join(root, mountPoint), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	settingsFile := filepath.Join(dir, "server.yaml")
	if err := os.WriteFile(settingsFile, []byte(settings), 0o644); err != nil {
		t.Fatal(err)
	}
	var uid, gid int
	if _, err := fmt.Sscanf(c.Config.User, "%d:%d", &uid, &gid); err != nil {
		t.Fatalf("the user %q of the image has no numbers: %v", c.Config.User, err)
	}
	const data = "/var/lib/leasekeeper"
	var volume syscall.Stat_t
	if err := syscall.Stat(filepath.Join(root, data), &volume); err != nil {
		t.Fatal(err)
	}
	type object = map[string]any
	spec := object{
		"ociVersion": "1.0.0",
		"root":       object{"path": "rootfs", "readonly": true},
		"process": object{
			"user": object{"uid": uid, "gid": gid}, "cwd": c.Config.WorkingDir, "noNewPrivileges": true, "capabilities": object{},
			"args": slices.Concat(c.Config.Entrypoint, c.Config.Cmd),
		},
		"mounts": []object{
			{"destination": "/proc", "type": "proc", "source": "proc"},
			{"destination": "/dev", "type": "tmpfs", "source": "tmpfs"},
			{"destination": data, "type": "tmpfs", "source": "tmpfs", "options": []string{
				fmt.Sprintf("uid=%d", volume.Uid), fmt.Sprintf("gid=%d", volume.Gid), fmt.Sprintf("mode=%04o", volume.Mode&0o777)}},
			{"destination": "/etc/leasekeeper/server.yaml", "type": "bind", "source": settingsFile, "options": []string{"bind", "ro"}},
		},
		"linux": object{"namespaces": []object{{"type": "pid"}, {"type": "network"}, {"type": "ipc"}, {"type": "uts"}, {"type": "mount"}}},
	}
	if err := os.WriteFile(filepath.Join(dir, "config.json"), encode(spec), 0o644); err != nil {
		t.Fatal(err)
	}
	return dir
}

// The image's own command runs as the image's own user, with the settings that it is given. Its server becomes ready, and ends at
// SIGTERM. testdata/container says how it is run.
func TestImageRuns(t *testing.T) {
	crun := required.Program(t, "crun", "crun", "/usr/bin")
	c, layer := readImage(t).open(t, "amd64")
	if os.Getuid() != 0 {
		if required.Is("crun") {
			t.Fatal("crun needs root here")
		}
		t.Skip("crun needs root here")
	}
	dir := bundle(t, c, layer, "log-format: json\n")
	script, err := filepath.Abs(filepath.Join("testdata", "container"))
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), "unshare", "--mount", "sh", script, crun)
	cmd.Dir = dir
	said, err := cmd.CombinedOutput()
	if err != nil && strings.Contains(string(said), "crun cannot run here") && !required.Is("crun") {
		t.Logf("CRUN CANNOT RUN ON THIS MACHINE; the program runs in the unpacked image by chroot instead:\n%s", said)
		said, err = exec.Command("chroot", "--userspec="+c.Config.User, filepath.Join(dir, "rootfs"), "/leasekeeper", "version").CombinedOutput()
	}
	if err != nil {
		t.Fatalf("the image does not run: %v\n%s", err, said)
	}
}
