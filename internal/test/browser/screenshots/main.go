package main

import (
	"context"
	"flag"
	"fmt"
	"log"
	"os"
	"path/filepath"
	"time"

	"github.com/chromedp/chromedp"

	"github.com/leasekeeper/leasekeeper/internal/test/browser"
)

// picture is one page to take.
type picture struct {
	file, path    string
	width, height int64
	scheme        string
}

var pictures = []picture{
	{"console-overview.png", "", 1200, 940, "light"},
	{"console-overview-dark.png", "", 1200, 940, "dark"},
	{"console-names.png", "names", 1200, 860, "light"},
	{"console-name.png", "name?name=billing/invoices", 1200, 1160, "light"},
	{"console-name-dark.png", "name?name=billing/invoices", 1200, 1160, "dark"},
	{"console-cluster.png", "cluster", 1200, 1160, "light"},
	{"console-audit.png", "audit", 1200, 860, "light"},
	{"console-host.png", "host?host=app-1", 1200, 940, "light"},
	{"console-name-phone.png", "name?name=billing/invoices", 390, 844, "dark"},
	{"console-names-phone.png", "names", 390, 844, "light"},
}

func main() {
	out := flag.String("out", ".", "the `folder` for the pictures")
	settle := flag.Duration("settle", 2*time.Minute, "how `long` the system runs before the pictures are taken, so that plots have figures")
	flag.Parse()
	log.SetFlags(0)
	if err := take(*out, *settle); err != nil {
		log.Fatal(err)
	}
}

func take(out string, settle time.Duration) error {
	ctx, cancel := context.WithTimeout(context.Background(), settle+10*time.Minute)
	defer cancel()
	dir, err := os.MkdirTemp("", "leasekeeper-browser-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	world, err := browser.NewWorld(ctx, dir)
	if err != nil {
		return err
	}
	defer world.Close()
	profile := filepath.Join(dir, "profile")
	program, err := browser.Start(ctx, profile)
	if err != nil {
		return err
	}
	defer program.Close()
	tab, _, err := program.Open()
	if err != nil {
		return err
	}
	if err := tab.Do(chromedp.Navigate(world.Link), chromedp.WaitVisible("h1"), chromedp.Sleep(settle)); err != nil {
		return err
	}
	for _, p := range pictures {
		err := tab.Size(p.width, p.height, p.scheme)
		if err == nil {
			// A page has room for a scroll bar, which pictures do not have.
			err = tab.Do(chromedp.Navigate(world.Root+p.path), chromedp.WaitVisible(".lamp.on"),
				chromedp.Evaluate[chromedp.Void](`document.documentElement.style.scrollbarGutter = "auto"`), chromedp.Sleep(1500*time.Millisecond))
		}
		if err != nil {
			return fmt.Errorf("%s: %w", p.file, err)
		}
		image, err := chromedp.Run(tab.Context, chromedp.CaptureScreenshot())
		if err != nil {
			return fmt.Errorf("%s: %w", p.file, err)
		}
		if image, err = small(image); err != nil {
			return fmt.Errorf("%s: %w", p.file, err)
		}
		if err := os.WriteFile(filepath.Join(out, p.file), image, 0o644); err != nil {
			return err
		}
		log.Print(p.file)
	}
	return nil
}
