{{- /* Made of k8s/base by `python -m tests.k8s.chart`: change that. */ -}}
{{- define "block-relay.config" -}}
{{ tpl .Values.config . }}
{{- end }}
{{- define "block-relay.spark" -}}
{{ include "block-relay.spark-defaults.conf" . }}
{{ include "block-relay.executor-pod.yaml" . }}
{{ include "block-relay.log4j2.properties" . }}
{{- end }}
{{- define "block-relay.submitted" -}}
--conf spark.executor.instances={{ .Values.loader.executors.instances }}
{{- range $name, $value := .Values.loader.executors.settings }} --conf {{ $name }}={{ $value }}
{{- end }} pyspark-shell
{{- end }}
{{- define "block-relay.serverPorts" -}}
[
{{- range $at, $port := .Values.network.serverPorts }}
{{- if $at }}, {{ end }}{"port": {{ $port }}, "protocol": "TCP"}
{{- end }}]
{{- end }}
{{- define "block-relay.spark-defaults.conf" -}}
# Of the driver in pod loader-0; the executors' number and image are in its environment.
spark.driver.host                                         loader-0.loader
spark.driver.bindAddress                                  0.0.0.0
spark.driver.port                                         7078
spark.driver.blockManager.port                            7079
spark.driver.memory                                       768m
spark.kubernetes.namespace                                {{ .Release.Namespace }}
spark.kubernetes.driver.pod.name                          loader-0
spark.kubernetes.authenticate.serviceAccountName          loader
spark.kubernetes.authenticate.executor.serviceAccountName loader-executor
spark.kubernetes.executor.podTemplateFile                 /etc/relay/spark/executor-pod.yaml
spark.kubernetes.executor.podTemplateContainerName        executor
spark.kubernetes.container.image                          ${env:LOADER_EXECUTOR_IMAGE}
spark.kubernetes.container.image.pullPolicy               IfNotPresent
# Rows never pass through the JVM: most of a pod's memory is Python's.
spark.executor.cores                                      1
spark.executor.memory                                     512m
spark.executor.memoryOverhead                             1536m
# A task waits for ClickHouse most of the time; the overlay `large` asks for a whole CPU.
spark.kubernetes.executor.request.cores                   500m
spark.kubernetes.executor.limit.cores                     1
spark.kubernetes.local.dirs.tmpfs                         false
# Executors find the driver by its name; by default they would take the address that it binds.
spark.kubernetes.executor.useDriverPodIP                  false
spark.kubernetes.executor.terminationGracePeriodSeconds   75s
# Nothing of an executor outlives it, so there are no volume claims and services to look for.
spark.kubernetes.driver.service.deleteOnTermination       false
spark.kubernetes.driver.ownPersistentVolumeClaim          false
spark.kubernetes.driver.reusePersistentVolumeClaim        false
{{- end }}
{{- define "block-relay.executor-pod.yaml" -}}
# What every executor's pod has beside what Spark puts in (image, command, resources, names).
apiVersion: v1
kind: Pod
metadata:
  labels:
    app.kubernetes.io/name: loader-executor
    app.kubernetes.io/part-of: block-relay
spec:
  automountServiceAccountToken: false
  terminationGracePeriodSeconds: 75
  securityContext:
    runAsNonRoot: true
    runAsUser: 10001
    runAsGroup: 10001
    fsGroup: 10001
    seccompProfile:
      type: RuntimeDefault
  containers:
    - name: executor
      securityContext:
        allowPrivilegeEscalation: false
        readOnlyRootFilesystem: true
        capabilities:
          drop: [ALL]
      volumeMounts:
        - name: passwords
          mountPath: /etc/relay/passwords
          readOnly: true
        - name: tmp
          mountPath: /tmp
  volumes:
    - name: passwords
      secret:
        secretName: {{ .Values.loader.secret }}
        defaultMode: 0440
    - name: tmp
      emptyDir:
        sizeLimit: 1Gi
{{- end }}
{{- define "block-relay.log4j2.properties" -}}
# Of Spark's JVM, driver and executors: warnings and errors, on stderr.
rootLogger.level = warn
rootLogger.appenderRef.stderr.ref = stderr
appender.stderr.type = Console
appender.stderr.name = stderr
appender.stderr.target = SYSTEM_ERR
appender.stderr.layout.type = PatternLayout
appender.stderr.layout.pattern = %d{yyyy-MM-dd'T'HH:mm:ss.SSS'Z'}{UTC} %p %c{1}: %m%n%ex

# At each start Spark waits a second for the driver's pod to become ready, which it is only once an
# executor has registered; then it goes on. What it says of that is one line, not twenty of stack.
logger.brief.name = org.apache.spark.util.Utils
logger.brief.level = warn
logger.brief.additivity = false
logger.brief.appenderRef.stderr.ref = brief
appender.brief.type = Console
appender.brief.name = brief
appender.brief.target = SYSTEM_ERR
appender.brief.layout.type = PatternLayout
appender.brief.layout.pattern = %d{yyyy-MM-dd'T'HH:mm:ss.SSS'Z'}{UTC} %p %c{1}: %m%notEmpty{: %ex{short.message}}%n
{{- end }}
