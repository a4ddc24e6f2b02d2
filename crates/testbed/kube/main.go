// One binary that is every program of a Kubernetes control plane and node, chosen by the name it
// is called under (a symbolic link). The test bed builds it from published modules, so that tests
// run against the real thing without downloading prebuilt binaries.
package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"sort"
	"strings"

	"k8s.io/component-base/cli"
	kubectl "k8s.io/kubectl/pkg/cmd"
	kubectlutil "k8s.io/kubectl/pkg/cmd/util"
	apiserver "k8s.io/kubernetes/cmd/kube-apiserver/app"
	controllermanager "k8s.io/kubernetes/cmd/kube-controller-manager/app"
	proxy "k8s.io/kubernetes/cmd/kube-proxy/app"
	scheduler "k8s.io/kubernetes/cmd/kube-scheduler/app"
	kubelet "k8s.io/kubernetes/cmd/kubelet/app"

	// The time zones of CronJobs, for machines without a zone database.
	_ "time/tzdata"

	// JSON logs, the metrics of the Go client, and the server's version as a metric: what the
	// programs' own mains bring in.
	_ "k8s.io/component-base/logs/json/register"
	_ "k8s.io/component-base/metrics/prometheus/clientgo"
	_ "k8s.io/component-base/metrics/prometheus/version"
)

func main() {
	programs := map[string]func() int{
		"kube-apiserver":          func() int { return cli.Run(apiserver.NewAPIServerCommand()) },
		"kube-controller-manager": func() int { return cli.Run(controllermanager.NewControllerManagerCommand()) },
		"kube-proxy":              func() int { return cli.Run(proxy.NewProxyCommand()) },
		"kube-scheduler":          func() int { return cli.Run(scheduler.NewSchedulerCommand()) },
		"kubelet":                 func() int { return cli.Run(kubelet.NewKubeletCommand(context.Background())) },
		"kubectl":                 runKubectl,
	}
	name := filepath.Base(os.Args[0])
	run, ok := programs[name]
	if !ok {
		names := make([]string, 0, len(programs))
		for known := range programs {
			names = append(names, known)
		}
		sort.Strings(names)
		fmt.Fprintf(os.Stderr, "called as %q: link it to one of %s\n", name, strings.Join(names, ", "))
		os.Exit(2)
	}
	os.Exit(run())
}

// kubectl prints its own errors, in words for people, and chooses its exit code.
func runKubectl() int {
	if err := cli.RunNoErrOutput(kubectl.NewDefaultKubectlCommand()); err != nil {
		kubectlutil.CheckErr(err)
	}
	return 0
}
