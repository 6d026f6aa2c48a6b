package main

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"io"
	"os"
	"time"
)

// imageUser is the user and group of the image. No system has another user of this number by default.
const (
	imageUser     = 65532
	imageUserName = "65532:65532"
)

// The media types of the parts of an image, as the OCI image specification names them.
const (
	typeIndex    = "application/vnd.oci.image.index.v1+json"
	typeManifest = "application/vnd.oci.image.manifest.v1+json"
	typeConfig   = "application/vnd.oci.image.config.v1+json"
	typeLayer    = "application/vnd.oci.image.layer.v1.tar+gzip"
)

// descriptor refers to a part of an image by its checksum.
type descriptor struct {
	MediaType   string            `json:"mediaType"`
	Digest      string            `json:"digest"`
	Size        int64             `json:"size"`
	Platform    *platform         `json:"platform,omitempty"`
	Annotations map[string]string `json:"annotations,omitempty"`
}

type platform struct {
	Architecture string `json:"architecture"`
	OS           string `json:"os"`
}

type index struct {
	SchemaVersion int               `json:"schemaVersion"`
	MediaType     string            `json:"mediaType"`
	Manifests     []descriptor      `json:"manifests"`
	Annotations   map[string]string `json:"annotations,omitempty"`
}

type manifest struct {
	SchemaVersion int               `json:"schemaVersion"`
	MediaType     string            `json:"mediaType"`
	Config        descriptor        `json:"config"`
	Layers        []descriptor      `json:"layers"`
	Annotations   map[string]string `json:"annotations,omitempty"`
}

type imageConfig struct {
	Created      time.Time `json:"created"`
	Architecture string    `json:"architecture"`
	OS           string    `json:"os"`
	Config       struct {
		User         string              `json:"User"`
		ExposedPorts map[string]struct{} `json:"ExposedPorts"`
		Entrypoint   []string            `json:"Entrypoint"`
		Cmd          []string            `json:"Cmd"`
		WorkingDir   string              `json:"WorkingDir"`
		Labels       map[string]string   `json:"Labels"`
		StopSignal   string              `json:"StopSignal"`
	} `json:"config"`
	RootFS struct {
		Type    string   `json:"type"`
		DiffIDs []string `json:"diff_ids"`
	} `json:"rootfs"`
	History []history `json:"history"`
}

type history struct {
	Created   time.Time `json:"created"`
	CreatedBy string    `json:"created_by"`
}

// image is an OCI image layout while it is made.
type image struct {
	*work
	entries []entry
	labels  map[string]string
}

// containers makes the container image for all Linux targets, as one OCI archive.
func (w *work) containers() error {
	i := &image{work: w, labels: map[string]string{
		"org.opencontainers.image.title":       "leasekeeper",
		"org.opencontainers.image.description": summary,
		"org.opencontainers.image.version":     w.number(),
		"org.opencontainers.image.revision":    w.commit,
		"org.opencontainers.image.source":      homepage,
		"org.opencontainers.image.licenses":    "Apache-2.0",
	}}
	all := index{SchemaVersion: 2, MediaType: typeIndex, Annotations: i.labels}
	for _, t := range w.targets {
		if t.system != "linux" {
			continue
		}
		d, err := i.forTarget(t)
		if err != nil {
			return err
		}
		all.Manifests = append(all.Manifests, d)
	}
	if len(all.Manifests) == 0 {
		return nil
	}
	// Programs that load the archive take the one image in its index, and of that the system that fits.
	d := i.add(typeIndex, encode(all))
	d.Annotations = map[string]string{"org.opencontainers.image.ref.name": publishedImage + ":" + w.number()}
	i.entries = append(i.entries,
		entry{name: "index.json", mode: 0o644, data: encode(index{SchemaVersion: 2, MediaType: typeIndex, Manifests: []descriptor{d}})},
		entry{name: "oci-layout", mode: 0o644, data: []byte(`{"imageLayoutVersion":"1.0.0"}`)})
	return create(w.add("leasekeeper_%s_image.tar", w.number()), func(out io.Writer) error { return writeTar(out, w.when, i.entries) })
}

// forTarget adds the image for one system.
func (i *image) forTarget(t target) (descriptor, error) {
	program, err := os.ReadFile(i.programs[t])
	if err != nil {
		return descriptor{}, err
	}
	root := []entry{
		{name: "leasekeeper", mode: 0o755, data: program},
		{name: "usr/", mode: 0o755}, {name: "usr/share/", mode: 0o755}, {name: "usr/share/doc/", mode: 0o755}, {name: "usr/share/doc/leasekeeper/", mode: 0o755},
		{name: "usr/share/doc/leasekeeper/LICENSE", mode: 0o644, data: i.texts.licence},
		{name: "usr/share/doc/leasekeeper/THIRD_PARTY_LICENCES", mode: 0o644, data: i.texts.thirdParty},
		{name: "var/", mode: 0o755}, {name: "var/lib/", mode: 0o755},
		{name: "var/lib/leasekeeper/", mode: 0o700, owner: imageUser}, // a new volume takes its owner from here
	}
	whole := sha256.New()
	if err := writeTar(whole, i.when, root); err != nil {
		return descriptor{}, err
	}
	var layer writerBuffer
	if err := writeTarGz(&layer, i.when, root); err != nil {
		return descriptor{}, err
	}
	c := imageConfig{Created: i.when, Architecture: t.processor, OS: t.system}
	c.Config.User = imageUserName
	c.Config.ExposedPorts = map[string]struct{}{"2379/tcp": {}, "2380/tcp": {}, "2381/tcp": {}}
	c.Config.Entrypoint = []string{"/leasekeeper"}
	c.Config.Cmd = []string{"serve", "--config", "/etc/leasekeeper/server.yaml", "--data-dir", "/var/lib/leasekeeper/data"}
	c.Config.WorkingDir = "/"
	c.Config.Labels = i.labels
	c.Config.StopSignal = "SIGTERM"
	c.RootFS.Type = "layers"
	c.RootFS.DiffIDs = []string{"sha256:" + hex.EncodeToString(whole.Sum(nil))}
	c.History = []history{{i.when, "leasekeeper " + i.version}}
	m := manifest{SchemaVersion: 2, MediaType: typeManifest, Config: i.add(typeConfig, encode(c)), Layers: []descriptor{i.add(typeLayer, layer)}, Annotations: i.labels}
	d := i.add(typeManifest, encode(m))
	d.Platform = &platform{Architecture: t.processor, OS: t.system}
	return d, nil
}

// add adds a part of the image under its checksum.
func (i *image) add(mediaType string, data []byte) descriptor {
	sum := sha256.Sum256(data)
	digest := hex.EncodeToString(sum[:])
	i.entries = append(i.entries, entry{name: "blobs/sha256/" + digest, mode: 0o644, data: data})
	return descriptor{MediaType: mediaType, Digest: "sha256:" + digest, Size: int64(len(data))}
}

// writerBuffer is a buffer that is its bytes.
type writerBuffer []byte

func (b *writerBuffer) Write(p []byte) (int, error) {
	*b = append(*b, p...)
	return len(p), nil
}

// encode returns a value as JSON. The values of this package always have such a form.
func encode(v any) []byte {
	text, err := json.Marshal(v)
	if err != nil {
		panic(err)
	}
	return text
}
