package main

import (
	"fmt"
	"os"

	"github.com/spf13/pflag"
	"golang.org/x/sync/errgroup"
	"k8s.io/apiextensions-apiserver/pkg/cmd/server/options"
	"k8s.io/apiserver/pkg/authentication/request/anonymous"
	"k8s.io/apiserver/pkg/authorization/authorizerfactory"
	genericapiserver "k8s.io/apiserver/pkg/server"
	"k8s.io/component-base/logs"
)

func main() {
	logs.InitLogs()
	defer logs.FlushLogs()
	if err := serve(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "apiserver:", err)
		os.Exit(1)
	}
}

// serve runs the API server until a signal ends it.
func serve(args []string) error {
	o := options.NewCustomResourceDefinitionsServerOptions(os.Stdout, os.Stderr)
	flags := pflag.NewFlagSet("apiserver", pflag.ContinueOnError)
	o.AddFlags(flags)
	var a address
	a.addFlags(flags)
	if err := flags.Parse(args); err != nil {
		return err
	}
	// Without these two, the server asks another API server.
	o.RecommendedOptions.Authentication = nil
	o.RecommendedOptions.Authorization = nil
	if err := o.ServerRunOptions.ComponentGlobalsRegistry.Set(); err != nil {
		return err
	}
	if err := o.Complete(); err != nil {
		return err
	}
	if err := o.Validate(); err != nil {
		return err
	}
	config, err := o.Config()
	if err != nil {
		return err
	}
	config.GenericConfig.Authentication.Authenticator = anonymous.NewAuthenticator(nil)
	config.GenericConfig.Authorization.Authorizer = authorizerfactory.NewAlwaysAllowAuthorizer()
	server, err := config.Complete().New(genericapiserver.NewEmptyDelegate())
	if err != nil {
		return err
	}
	ctx := genericapiserver.SetupSignalContext()
	prepared := server.GenericAPIServer.PrepareRun()
	if a.name == "" {
		return prepared.RunWithContext(ctx)
	}
	group, ctx := errgroup.WithContext(ctx)
	group.Go(func() error { return a.run(ctx, o.RecommendedOptions.Etcd.StorageConfig) })
	group.Go(func() error { return prepared.RunWithContext(ctx) })
	return group.Wait()
}
